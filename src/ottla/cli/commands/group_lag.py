"""The lag of groups over time, for ``ottla group lag``. Pure but for `measured`.

A rate is records per second between two measurements. ``eta`` is how many seconds the group needs
to reach the end at the current rates; None if it does not come closer.
"""

from collections.abc import Iterable, Mapping

from ottla.cli.terminal.rendering import Row
from ottla.client.cluster import Cluster
from ottla.operations.group_describing import described

Position = tuple[int, int]
"""The committed offset (or a share group's start) and the end of a partition."""

Place = tuple[str, str, int]
"""Group, topic and partition."""


async def measured(cluster: Cluster, names: Iterable[str]) -> dict[Place, Position]:
    """Return where groups stand; partitions without a known lag are left out."""
    found: dict[Place, Position] = {}
    for name in names:
        offsets = (await described(cluster, name))["offsets"]
        assert isinstance(offsets, list)
        for row in offsets:
            assert isinstance(row, Mapping)
            lag, at = row["lag"], row.get("committed", row.get("start"))
            if isinstance(lag, int) and lag >= 0 and isinstance(at, int):
                found[name, str(row["topic"]), int(str(row["partition"]))] = (at, at + lag)
    return found


def lag_rows(
    now: Mapping[Place, Position], before: Mapping[Place, Position], seconds: float
) -> list[Row]:
    """Return a row for each partition, the largest lag of a group first.

    ``before`` was measured ``seconds`` earlier; it is empty the first time, without rates then.
    """
    return [
        _row(place, now[place], before.get(place), seconds)
        for place in sorted(now, key=lambda at: (at[0], -(now[at][1] - now[at][0]), at[1], at[2]))
    ]


def _row(place: Place, now: Position, before: Position | None, seconds: float) -> Row:
    (group, topic, partition), (at, end) = place, now
    read = written = eta = None
    if before is not None and seconds > 0:
        read = round((at - before[0]) / seconds, 1)
        written = round((end - before[1]) / seconds, 1)
        if at == end:
            eta = 0
        elif read > written:
            eta = round((end - at) / (read - written))
    return {
        "group": group,
        "topic": topic,
        "partition": partition,
        "offset": at,
        "end": end,
        "lag": end - at,
        "read/s": read,
        "written/s": written,
        "eta": eta,
    }
