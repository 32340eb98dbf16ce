"""``ottla txn``: list and describe transactions, find and abort hanging ones."""

from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from ottla.cli.commands.reset_options import topics_of
from ottla.cli.connecting.session import permission_hint, with_cluster
from ottla.cli.options import BOOTSTRAP_DEFAULT, BootstrapOption, OutputOption, answer, say
from ottla.cli.terminal.rendering import Row
from ottla.client.admin_transactions import (
    OpenTransaction,
    abort_in_partition,
    describe_transaction,
    fence,
    hanging,
    known_partitions,
    list_transactions,
    open_in,
)
from ottla.client.cluster import Cluster, Refused
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import TopicPartition

app = typer.Typer(help="Transactions.", no_args_is_help=True, add_completion=False)

MINUTES_DEFAULT: Final = 15
"""The default of ``transaction.max.timeout.ms``: no transaction is open for longer."""

Id = Annotated[str, typer.Argument(help="Transactional id.")]


@app.command("list")
def show_list(
    context: typer.Context,
    *,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Show only transactions in this state: Ongoing, Empty, ..."),
    ] = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """List transactional ids and the states of their transactions."""
    found = with_cluster(bootstrap, lambda cluster: list_transactions(cluster, state or ()))
    rows: list[Row] = [
        {
            "transactional_id": each.transactional_id,
            "coordinator": each.coordinator,
            "producer_id": each.producer_id,
            "state": each.state,
        }
        for each in found
    ]
    empty = "no transactions in this state" if state else "no transactions"
    answer(context, output, rows, empty=empty)


@app.command("describe")
def describe(
    context: typer.Context,
    transactional_id: Id,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show a transaction's producer, start time and partitions."""
    found = with_cluster(bootstrap, lambda c: describe_transaction(c, transactional_id))
    began = found.transaction_start_time_ms
    answer(
        context,
        output,
        {
            "transactional_id": found.transactional_id,
            "state": found.transaction_state,
            "producer_id": found.producer_id,
            "producer_epoch": found.producer_epoch,
            "timeout_ms": found.transaction_timeout_ms,
            "since": time_text(began) if began >= 0 else None,
            "partitions": {each.topic: sorted(each.partitions) for each in found.topics},
        },
    )


@app.command("abort")
def abort(
    context: typer.Context,
    transactional_id: Annotated[
        str | None, typer.Argument(help="Transactional id; or use --topic and --start-offset.")
    ] = None,
    *,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Partition, such as topic:0.")
    ] = None,
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", help="First offset of the hanging transaction.")
    ] = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Abort a transaction by its id, which fences its producer, or a hanging one in a partition."""
    by_place = topic is not None and start_offset is not None
    if (transactional_id is not None) == by_place or (topic is None) != (start_offset is None):
        raise typer.BadParameter("give a transactional id, or --topic and --start-offset")
    if transactional_id is not None:
        answer(context, output, with_cluster(bootstrap, lambda c: _fenced(c, transactional_id)))
        return
    assert topic is not None
    assert start_offset is not None
    place = _place(topic)
    answer(context, output, with_cluster(bootstrap, lambda c: _aborted(c, place, start_offset)))


async def _fenced(cluster: Cluster, transactional_id: str) -> Row:
    # InitProducerId would create an unknown id.
    before = await describe_transaction(cluster, transactional_id)
    producer_id, epoch = await fence(cluster, transactional_id)
    return {
        "aborted": transactional_id,
        "state_before": before.transaction_state,
        "producer_id": producer_id,
        "producer_epoch": epoch,
    }


async def _aborted(cluster: Cluster, place: TopicPartition, start_offset: int) -> Row:
    found, refused = await open_in(cluster, [place])
    if refused:
        raise refused[0]
    for each in found:
        if each.start_offset == start_offset:
            await abort_in_partition(cluster, each)
            return {"aborted": str(place), **open_row(each)}
    starts = ", ".join(str(each.start_offset) for each in found) or "nowhere"
    why = f"no transaction begins at {start_offset}; open transactions begin at: {starts}"
    raise Refused(ErrorCode.INVALID_TXN_STATE, str(place), why)


@app.command("hanging")
def show_hanging(
    context: typer.Context,
    *,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", help="Only these partitions: topic or topic:0,2; may be repeated."
        ),
    ] = None,
    minutes: Annotated[
        int,
        typer.Option(
            "--older-than", min=0, help="Minutes since the last write of the transaction."
        ),
    ] = MINUTES_DEFAULT,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Find transactions that are open in a partition but unknown to their coordinator."""
    wanted = topics_of(topics)

    async def work(cluster: Cluster) -> list[OpenTransaction]:
        places = await _places(cluster, wanted)
        found, refused = await open_in(cluster, places)
        for each in refused:
            say(f"not checked: {each}{permission_hint(each, ApiKey.DESCRIBE_PRODUCERS)}")
        before = cluster.ports.clock.now() - minutes * 60_000
        known = await known_partitions(cluster, (each.producer_id for each in found))
        return hanging(found, known, before)

    rows = [open_row(each) for each in with_cluster(bootstrap, work)]
    answer(context, output, rows, empty="no transaction hangs")


async def _places(
    cluster: Cluster, wanted: dict[str, tuple[int, ...] | None]
) -> list[TopicPartition]:
    names = list(wanted)
    if not names:
        response = await cluster.metadata(None)
        names = sorted(topic.name for topic in response.topics if topic.name)
    found: list[TopicPartition] = []
    for name in names:
        numbers = wanted.get(name)
        has = (await cluster.topic(name)).partitions
        found += [TopicPartition(name, each) for each in (has if numbers is None else numbers)]
    return found


def _place(text: str) -> TopicPartition:
    ((name, numbers),) = topics_of([text]).items()
    if numbers is None or len(numbers) != 1:
        raise typer.BadParameter("must name one partition: topic:0", param_hint="--topic")
    return TopicPartition(name, numbers[0])


def open_row(each: OpenTransaction) -> Row:
    """Return an open transaction as a row."""
    return {
        "topic": each.place.topic,
        "partition": each.place.partition,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "start_offset": each.start_offset,
        "last_write": time_text(each.last_timestamp) if each.last_timestamp >= 0 else None,
    }


def time_text(millis: int) -> str:
    """Return a time in ISO 8601, in UTC."""
    found = datetime.fromtimestamp(millis / 1000, UTC)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")
