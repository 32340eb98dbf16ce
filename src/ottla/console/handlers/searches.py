"""Searches: start, look, cancel, resume."""

from typing import Final

from ottla.client.offset_spec import BEGINNING, AtOffset, AtTime, OffsetSpec
from ottla.client.offsets import resolve
from ottla.console.browsing import bounds_of, partitions_of
from ottla.console.decoding import decoder_of, value_decoder
from ottla.console.endpoints import Call, Done, Rejected
from ottla.console.handlers.messages import parse_moment
from ottla.console.search import SearchJob
from ottla.console.search_rules import BadCondition, matcher_of, parse_query
from ottla.console.segments import path_of
from ottla.operations.rows import Row

CONDITIONS: Final = ("text", "key", "header", "json")


async def searches(call: Call) -> Row:
    """Return the user's searches, and the conditions of a new one."""
    jobs = call.context.jobs.list(call.user.jobs_key)
    conditions = {name: call.text(name) for name in (*CONDITIONS, "topic")}
    return {"searches": [job.view() for job in jobs], "conditions": conditions}


async def start(call: Call) -> Done:
    """Start a search of a topic."""
    topic = call.required("topic")
    conditions = {name: call.text(name) for name in CONDITIONS}
    try:
        query = parse_query(*conditions.values())
    except BadCondition as error:
        raise Rejected(400, str(error)) from error
    partition = call.number("partition", -1, low=-1, high=1_000_000)
    places = await partitions_of(call.cluster, topic, None if partition < 0 else partition)
    bounds = await bounds_of(call.cluster, places, is_committed_only=True)
    starts = await resolve(call.cluster, dict.fromkeys(places, _first(call)))
    decode = decoder_of(topic, call.user.registry)
    job = SearchJob(
        topic=topic,
        conditions={name: text for name, text in conditions.items() if text},
        starts={
            place: min(max(starts[place], bounds[place][0]), bounds[place][1]) for place in places
        },
        ends={place: bounds[place][1] for place in places},
        matches=matcher_of(query, value_decoder(decode)),
        decode=decode,
        cluster=call.cluster,
    )
    job_id = call.context.jobs.start(call.user.jobs_key, job)
    return Done("The search has started.", path_of("/searches", job_id), {"id": job_id})


def _first(call: Call) -> OffsetSpec:
    """Return where a search begins."""
    if text := call.text("since"):
        return AtTime(parse_moment(text))
    if call.text("offset"):
        return AtOffset(call.number("offset", 0))
    return BEGINNING


async def search(call: Call) -> Row:
    """Return how far a search is, and its hits."""
    job = call.context.jobs.get(call.user.jobs_key, call.names["search"])
    view: Row = job.view()
    return {**view, "hits": list(job.hits)}


async def cancel(call: Call) -> Done:
    """Stop a search."""
    job_id = call.names["search"]
    call.context.jobs.cancel(call.user.jobs_key, job_id)
    return Done("The search was cancelled.", path_of("/searches", job_id))


async def resume(call: Call) -> Done:
    """Continue a search where it stopped."""
    job_id = call.names["search"]
    call.context.jobs.resume(call.user.jobs_key, job_id)
    return Done("The search continues.", path_of("/searches", job_id))
