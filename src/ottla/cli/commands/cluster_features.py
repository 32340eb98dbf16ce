"""``ottla cluster features``: describe, upgrade and downgrade finalized features (KIP-584)."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from ottla.cli.connecting.session import with_cluster
from ottla.cli.options import BOOTSTRAP_DEFAULT, BootstrapOption, OutputOption, answer, say
from ottla.cli.terminal.rendering import Row
from ottla.cli.terminal.suggestions import did_you_mean
from ottla.client.admin_quorum import (
    FeatureChange,
    FeatureRange,
    describe_features,
    update_features,
)
from ottla.client.cluster import Cluster
from ottla.metadata.features import FEATURES, default_levels
from ottla.metadata.metadata_versions import (
    METADATA_VERSION,
    MetadataVersion,
    from_version_string,
)

app = typer.Typer(
    help="Describe, upgrade and downgrade the features of the cluster.",
    no_args_is_help=True,
    add_completion=False,
)


class BadFeature(Exception):
    """A feature, a level or a release that is not known."""


# -- rules -----------------------------------------------------------------------------------


def level_text(feature: str, level: int) -> str:
    """Return a level as Kafka's tools show it: metadata.version by its name."""
    if feature == METADATA_VERSION and level in MetadataVersion._value2member_map_:
        return str(MetadataVersion(level))
    return str(level)


def parse_levels(
    texts: Sequence[str], release: str | None, change: FeatureChange
) -> dict[str, int]:
    """Return the requested levels: of single features, or of all features of a release.

    As in Kafka's tool, the upgrade to a release leaves features alone that it does not use yet.

    Raises:
        BadFeature: unknown, malformed, named twice, or both forms at once.
    """
    if bool(texts) == (release is not None):
        raise BadFeature("give --release-version, or --feature name=level")
    if release is not None:
        version = from_version_string(release)
        if version is None:
            raise BadFeature(f"{release} is no known release; for example 4.2")
        is_upgrade = change is FeatureChange.UPGRADE
        levels = default_levels(version)
        return {name: level for name, level in levels.items() if level or not is_upgrade}
    found: dict[str, int] = {}
    for text in texts:
        name, _, level = text.partition("=")
        if name in found:
            raise BadFeature(f"{name} is given twice")
        found[name] = _parse_level(name, level)
    return found


def _parse_level(name: str, text: str) -> int:
    names = (METADATA_VERSION, *FEATURES)
    if name not in names:
        hint = did_you_mean(name, names) or f"; known: {', '.join(names)}"
        raise BadFeature(f"there is no feature {name!r}{hint}")
    if name == METADATA_VERSION and not text.isdecimal():
        version = from_version_string(text)
        if version is not None:
            return int(version)
    if not text.isdecimal():
        raise BadFeature(f"{name}={text}: a level is a number, as in share.version=1")
    return int(text)


def changes_of(
    levels: Mapping[str, int], features: Mapping[str, FeatureRange]
) -> dict[str, tuple[int, int]]:
    """Return the features that would change, each with its level now and then."""
    return {
        name: (features[name].finalized if name in features else 0, level)
        for name, level in levels.items()
        if name not in features or features[name].finalized != level
    }


# -- commands --------------------------------------------------------------------------------


@app.command("describe")
def describe(
    context: typer.Context,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show the level of each feature, and the levels that the broker supports."""
    features = with_cluster(bootstrap, describe_features)
    rows: list[Row] = [
        {
            "feature": name,
            "level": level_text(name, each.finalized),
            "lowest": level_text(name, each.lowest),
            "highest": level_text(name, each.highest),
        }
        for name, each in features.items()
    ]
    answer(context, output, rows)


FeatureOption = Annotated[
    list[str] | None,
    typer.Option("--feature", "-f", metavar="NAME=LEVEL", help="A feature; may be repeated."),
]
ReleaseOption = Annotated[
    str | None,
    typer.Option(
        "--release-version", metavar="RELEASE", help="All features as in this release: 4.2."
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Let the controller check it; change nothing.")
]


@app.command("upgrade")
def upgrade(
    context: typer.Context,
    *,
    feature: FeatureOption = None,
    release: ReleaseOption = None,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Raise features; every node must support the new levels."""
    levels = _levels(feature, release, FeatureChange.UPGRADE)
    rows = _change(bootstrap, levels, FeatureChange.UPGRADE, is_dry_run=dry_run)
    answer(context, output, rows)


@app.command("downgrade")
def downgrade(
    context: typer.Context,
    *,
    feature: FeatureOption = None,
    release: ReleaseOption = None,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Allow a downgrade that may lose metadata.")
    ] = False,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Lower features; refused if metadata would be lost."""
    change = FeatureChange.UNSAFE_DOWNGRADE if unsafe else FeatureChange.SAFE_DOWNGRADE
    rows = _change(bootstrap, _levels(feature, release, change), change, is_dry_run=dry_run)
    answer(context, output, rows)


def _levels(texts: list[str] | None, release: str | None, change: FeatureChange) -> dict[str, int]:
    try:
        return parse_levels(texts or [], release, change)
    except BadFeature as error:
        raise typer.BadParameter(str(error)) from error


def _change(
    bootstrap: str, levels: Mapping[str, int], change: FeatureChange, *, is_dry_run: bool
) -> list[Row]:
    async def work(cluster: Cluster) -> dict[str, tuple[int, int]]:
        changes = changes_of(levels, await describe_features(cluster))
        if changes:
            wanted = {name: level for name, (_, level) in changes.items()}
            await update_features(cluster, wanted, change, is_dry_run=is_dry_run)
        return changes

    changes = with_cluster(bootstrap, work)
    if not changes:
        say("nothing to do: the features have these levels already")
    elif is_dry_run:
        say("dry run: the controller accepts these changes; nothing was changed")
    return [
        {"feature": name, "from": level_text(name, now), "to": level_text(name, then)}
        for name, (now, then) in changes.items()
    ]
