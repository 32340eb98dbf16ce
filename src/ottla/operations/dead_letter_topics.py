"""The dead-letter topics of a cluster, and what waits in them."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ottla.client.admin import list_topics, topic_settings
from ottla.client.cluster import Cluster
from ottla.operations.dead_letter_headers import read_letter
from ottla.operations.handled_letters import HandledLetters
from ottla.operations.redrive import bounds, handled_letters, read_letters
from ottla.protocol.types import Offset

ENABLES: Final = (
    "errors.deadletterqueue.group.enable",
    "ottla.errors.deadletterqueue.group.enable",
)
OF_TABLE: Final = "ottla.table.dead.letters"
"""The topic to which the table of a topic writes its dead letters."""
NAMES: Final = re.compile(r"dlq[.-].*|.*[.-]dl[qt]|.*-dlq-.*", re.IGNORECASE | re.DOTALL)
"""Names of dead-letter topics by Kafka's prefix, and as users of Connect and Spring have them."""
LETTERS_READ_MAX: Final = 10_000
"""Letters of a partition that a summary reads for its reasons, the newest."""
REASONS_MAX: Final = 10


class LetterSummary(msgspec.Struct, frozen=True):
    """The letters of a topic that wait. ``newest`` is a timestamp; None without letters.

    ``reasons`` are the most frequent ones, with their counts.
    """

    topic: str
    waiting: int
    newest: int | None
    reasons: Mapping[str, int]


async def dead_letter_topics(cluster: Cluster) -> list[str]:
    """Return the topics that groups and tables may write dead letters to, and those named so."""
    names = [topic.name or "" for topic in await list_topics(cluster)]
    settings = await topic_settings(cluster, names, [*ENABLES, OF_TABLE])
    return choose_dead_letter_topics(names, settings)


def choose_dead_letter_topics(
    names: Sequence[str], settings: Mapping[str, Mapping[str, str | None]]
) -> list[str]:
    """Return the dead-letter topics among ``names``, by their names and by settings of topics."""
    of_tables = {of_topic.get(OF_TABLE) for of_topic in settings.values()}
    return sorted(
        name
        for name in names
        if NAMES.fullmatch(name)
        or name in of_tables
        or any(settings.get(name, {}).get(key) == "true" for key in ENABLES)
    )


async def summarize_letters(cluster: Cluster, topic: str) -> LetterSummary:
    """Count the letters of a topic that wait, and the reasons of the newest. Raises `Refused`."""
    limits = await bounds(cluster, topic)
    handled = await handled_letters(cluster, topic, limits)
    waiting = sum(handled[at].count_between(*limits[at]) for at in limits)
    recent = {at: (max(start, end - LETTERS_READ_MAX), end) for at, (start, end) in limits.items()}
    for at, (start, _) in recent.items():
        if start > handled[at].position:
            handled[at] = HandledLetters(Offset(start), handled[at].metadata)
    reasons: Counter[str] = Counter()
    newest = -1
    async for letters in read_letters(cluster, read_letter, recent, handled):
        for letter in letters:
            reasons[letter.reason] += 1
            newest = max(newest, letter.record.timestamp)
    return LetterSummary(
        topic, waiting, None if newest < 0 else newest, dict(reasons.most_common(REASONS_MAX))
    )
