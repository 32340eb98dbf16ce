"""Dead letters: topics that have them, the letters, redrive and drop."""

from functools import partial
from typing import Final

from ottla.console.endpoints import Call, Done, Rejected, Result
from ottla.console.record_views import LIST_CHARACTERS_MAX, record_view
from ottla.console.segments import path_of
from ottla.operations.counting import plural
from ottla.operations.dead_letter_headers import DeadLetter, read_letter
from ottla.operations.dead_letter_selection import LetterFilter, parse_place
from ottla.operations.dead_letter_topics import (
    LetterSummary,
    dead_letter_topics,
    summarize_letters,
)
from ottla.operations.handled_letters import TooScattered
from ottla.operations.redrive import (
    Redrive,
    RedriveCounts,
    bounds,
    handled_letters,
    read_letters,
    run_redrive,
)
from ottla.operations.rows import Row

TOPICS_MAX: Final = 50
LETTERS_MAX: Final = 100


async def letter_topics(call: Call) -> Row:
    """Return the dead-letter topics, with what waits in them."""
    names = await dead_letter_topics(call.cluster)
    rows = [
        _summary_row(await summarize_letters(call.cluster, name)) for name in names[:TOPICS_MAX]
    ]
    return {"topics": rows, "topic_count": len(names)}


def _summary_row(summary: LetterSummary) -> Row:
    return {
        "topic": summary.topic,
        "waiting": summary.waiting,
        "newest": summary.newest,
        "reasons": [{"reason": text, "count": count} for text, count in summary.reasons.items()],
    }


def _filter(call: Call) -> LetterFilter:
    try:
        place = parse_place(text) if (text := call.text("at")) else None
    except ValueError as error:
        raise Rejected(400, str(error)) from error
    return LetterFilter(
        call.text("reason") or None, call.text("group") or None, call.text("origin") or None, place
    )


async def letters(call: Call) -> Row:
    """Return letters of a topic that wait."""
    topic = call.names["topic"]
    selects = _filter(call).selects
    limits = await bounds(call.cluster, topic)
    handled = await handled_letters(call.cluster, topic, limits)
    rows: list[Row] = []
    async for some in read_letters(call.cluster, read_letter, limits, handled):
        rows += [_row(letter) for letter in some if selects(letter)]
        if len(rows) >= LETTERS_MAX:
            break
    return {
        "topic": topic,
        "letters": rows[:LETTERS_MAX],
        "is_cut": len(rows) > LETTERS_MAX,
        "filter": {name: call.text(name) for name in ("reason", "group", "origin", "at")},
    }


def _row(letter: DeadLetter) -> Row:
    return {
        **record_view(letter.at, letter.record, LIST_CHARACTERS_MAX),
        "reason": letter.reason,
        "origin": letter.topic,
        "origin_partition": letter.partition,
        "origin_offset": letter.offset,
        "group": letter.group,
        "deliveries": letter.deliveries,
        "redrives": letter.redrives,
    }


async def handle(call: Call) -> Result:
    """Count the letters that a redrive or drop selects; with ``execute``, do it."""
    topic = call.names["topic"]
    action = call.one_of("action", ("redrive", "drop"))
    is_executed = call.flag("execute")
    plan = Redrive(
        topic,
        _filter(call).selects,
        partial(read_letter),
        call.text("to") or None,
        is_drop=action == "drop",
        is_dry_run=not is_executed,
    )
    try:
        counts = await run_redrive(call.cluster, plan, _ignore)
    except TooScattered as error:
        raise Rejected(409, str(error)) from error
    if is_executed:
        verb = "dropped" if plan.is_drop else "sent back"
        message = f"{plural(counts.handled, 'letter')} of {topic} {verb}."
        return Done(message, path_of("/letters", topic), {"letters": counts.handled})
    return {
        "topic": topic,
        "action": action,
        "letters": counts.handled,
        "targets": [{"topic": name, "count": count} for name, count in counts.targets.items()],
        "not_selected": counts.not_selected,
        "without_record": counts.without_record,
        "fields": {
            name: call.text(name) for name in ("reason", "group", "origin", "at", "to", "action")
        },
    }


def _ignore(counts: RedriveCounts) -> None:
    """Do nothing: the reply has the counts."""
