"""What a family of cases is made of, and how the families are found."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from uuid import UUID

from tests.differential import wire
from tests.differential.script import PATIENCE_S, Script

Values = dict[str, object]
Template = Callable[[Script], Values]
Play = Callable[[Script], None]
CASES = Path(__file__).parent / "cases"


@dataclass(frozen=True, slots=True)
class Case:
    """One script that both peers play. ``name`` is ``family/what`` or ``family/api/what/vN``."""

    name: str
    play: Play
    patience_s: float = PATIENCE_S


@dataclass(frozen=True, slots=True)
class Ranges:
    """The versions that Kafka advertises, by API; only those that kio knows, too."""

    broker: dict[str, range]
    controller: dict[str, range]

    def of(self, api: str) -> list[int]:
        offered = self.broker.get(api) or self.controller.get(api) or range(0)
        return [version for version in wire.versions(api) if version in offered]


@dataclass(frozen=True, slots=True)
class Family:
    """Cases about one subject. ``setup`` is played once on each peer before them."""

    name: str
    setup: Play
    cases: Callable[[Ranges], Iterator[Case]]


def families() -> list[Family]:
    """Return every family, from the modules in ``cases``, in the order of their names."""
    found = []
    for path in sorted(CASES.glob("*.py")):
        module = import_module(f"tests.differential.cases.{path.stem}")
        found.append(Family(path.stem, getattr(module, "setup", lambda script: None), module.cases))
    return found


class _AnyMemory(dict[str, object]):
    def __missing__(self, key: str) -> object:
        return UUID(int=7)


def example(template: Template) -> Values:
    """Return what a template gives without a peer: right in form, with ids that mean nothing."""
    return template(Script("example", None, None, _AnyMemory()))  # type: ignore[arg-type]


def request(
    api: str,
    version: int,
    template: Template,
    *,
    tail: bytes = b"",
    cut: int = 0,
    change: "Callable[[Values], Values] | None" = None,
    to_controller: bool = False,
    prepare: Play | None = None,
) -> Play:
    """Return a script of a single request; ``prepare`` comes first and is not compared."""

    def play(script: Script) -> None:
        if prepare is not None:
            prepare(script)
        values = template(script)
        if change is not None:
            values = change(values)
        script.call(api, version, tail=tail, cut=cut, to_controller=to_controller, **values)

    return play
