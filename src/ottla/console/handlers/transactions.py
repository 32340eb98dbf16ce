"""Transactions: the list, one of them, and aborting it."""

from ottla.client.admin_transactions import describe_transaction, fence, list_transactions
from ottla.console.endpoints import Call, Done
from ottla.console.handlers.topics import confirm, list_query
from ottla.console.paging import select
from ottla.console.segments import path_of
from ottla.operations.rows import Row


async def transactions(call: Call) -> Row:
    """Return a page of the list of transactional ids."""
    listings = await list_transactions(call.cluster)
    page, paging = select(
        listings,
        list_query(call),
        lambda listing: f"{listing.transactional_id} {listing.state}",
        {
            "id": lambda listing: listing.transactional_id,
            "state": lambda listing: listing.state,
        },
    )
    rows: list[Row] = [
        {
            "id": listing.transactional_id,
            "state": listing.state,
            "producer_id": listing.producer_id,
            "coordinator": listing.coordinator,
        }
        for listing in page
    ]
    return {"transactions": rows, "paging": paging}


async def transaction(call: Call) -> Row:
    """Return one transactional id."""
    name = call.names["transaction"]
    state = await describe_transaction(call.cluster, name)
    started = state.transaction_start_time_ms
    return {
        "id": name,
        "state": state.transaction_state,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "timeout_ms": state.transaction_timeout_ms,
        "started": started if started >= 0 else None,
        "age_ms": max(0, call.context.clock.now() - started) if started >= 0 else None,
        "partitions": [
            f"{topic.topic}-{number}" for topic in state.topics for number in topic.partitions
        ],
        "is_open": state.transaction_state == "Ongoing",
    }


async def abort(call: Call) -> Done:
    """Abort a transaction, whose id was typed; its producer is fenced."""
    name = call.names["transaction"]
    confirm(call, name)
    await describe_transaction(call.cluster, name)  # fencing would create an unknown id
    await fence(call.cluster, name)
    return Done(
        f"The transaction of {name} was aborted; its producer is fenced.",
        path_of("/transactions", name),
    )
