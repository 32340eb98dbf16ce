"""The page that explains the state of a group: /groups/NAME/explain, as JSON.

    {"group", "type", "state", "members", "epoch", "sentences": [...],
     "waiting": [{"who", "what", "since", "until"}], "notes": [{"at", "kind", "text"}]}

Times are milliseconds since 1970, or null. Like every page of this listener it needs no
authentication: anyone who can reach it sees the names of groups and the addresses of their members.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final
from urllib.parse import unquote

import msgspec

from ottla.coordinators.groups.explain import Story, sentences, story_of
from ottla.coordinators.groups.service import GroupCoordinator
from ottla.metadata.image import Image
from ottla.observability.http import Page, plain
from ottla.protocol.faults import Fault
from ottla.protocol.types import Millis

EXPLAIN: Final = "/explain"


def group_page(
    groups: GroupCoordinator, image: Callable[[], Image], now: Millis, rest: str
) -> Page:
    """Return the page of ``NAME/explain``; 404 for an unknown group, 503 if not here."""
    name = unquote(rest.removesuffix(EXPLAIN))
    if not rest.endswith(EXPLAIN) or not name:
        return plain(404, "no such page; there is /groups/NAME/explain")
    try:
        machine = groups.runtime.shard(groups.runtime.index_of(name)).machine
    except Fault as fault:
        return plain(503, f"{fault.code.name}: not coordinated here, or not yet")
    story = story_of(machine, name, image(), now)
    if story is None:
        return plain(404, f"no group {name}")
    return Page(200, "application/json", msgspec.json.encode(_document(story)))


def _document(story: Story) -> dict[str, object]:
    return {
        "group": story.group_id,
        "type": story.kind,
        "state": story.state,
        "members": story.members,
        "epoch": story.epoch,
        "sentences": sentences(story, time_words),
        "waiting": story.waiting,
        "notes": [
            {"at": note.at, "kind": note.kind.value, "text": note.text} for note in story.notes
        ],
    }


def time_words(at: Millis) -> str:
    """Return a time in ISO 8601, in UTC."""
    found = datetime.fromtimestamp(at / 1000, UTC)
    return found.isoformat(timespec="seconds").replace("+00:00", "Z")
