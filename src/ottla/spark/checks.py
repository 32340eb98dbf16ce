"""Audits the whole history of topics with Spark jobs.

    report = audit(spark, {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"})
    assert report.is_clean, report

Ranges of partitions are read in parallel, from leaders or from files (``tier``), with
read_uncommitted and including control batches: each batch becomes one row of facts. The facts of a
partition are then sorted and checked by `audit`. Finally transactions are compared across
partitions: one that is committed in one and aborted in another was not atomic. Memory grows with
the number of producers, not with the length of the history.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from ottla.client import requests
from ottla.client.blocking.broker_client import BrokerClient, client_for
from ottla.client.blocking.range_fetch import DataLost
from ottla.client.offset_spec import LATEST
from ottla.protocol.faults import CorruptBatch, RecordTooLarge, UnsupportedMagic
from ottla.protocol.types import TopicPartition
from ottla.protocol.uuids import parse_uuid
from ottla.spark import plan
from ottla.spark.audit import (
    FINDINGS_MAX,
    Account,
    BatchFact,
    Finding,
    PartitionAudit,
    Problem,
    Scope,
    Transaction,
    damage,
    expiry,
    read_facts,
)
from ottla.spark.data_loss import Survey
from ottla.spark.options import SourceOptions
from ottla.spark.tier import batch_reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OFFSETS_PER_TASK: Final = 4_000_000
"""Most offsets one task reads, so that several tasks share a long partition."""
_ROWS: Final = 10_000

_FACTS: Final = (
    "topic string, partition int, base_offset long, next_offset long, records long,"
    " leader_epoch int, producer_id long, producer_epoch int, base_sequence int,"
    " is_transactional boolean, kind string, note string"
)
_RESULTS: Final = (
    "what string, topic string, partition int, offset long, producer_id long, producer_epoch int,"
    " is_commit boolean, detail string"
)
_FACT_FIELDS: Final = tuple(BatchFact.__struct_fields__)


class PartitionReport(msgspec.Struct, frozen=True):
    """The account of the offsets ``[start, end)`` of one partition."""

    topic: str
    partition: int
    start: int
    end: int
    account: Account


class Report(msgspec.Struct, frozen=True):
    """The result of an audit. ``findings`` is bounded; ``count`` counts all of them.

    ``uncompared`` transactions could not be compared across partitions, because their producer
    used one epoch for several transactions, as producers do before transaction.version 2.
    """

    partitions: tuple[PartitionReport, ...]
    findings: tuple[Finding, ...]
    count: int
    transactions: int = 0
    uncompared: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether there are no findings."""
        return self.count == 0

    def total(self) -> Account:
        """Return the sum over all partitions."""
        sums = {
            name: sum(getattr(each.account, name) for each in self.partitions)
            for name in Account.__struct_fields__
        }
        return Account(**sums)

    def __str__(self) -> str:
        total = self.total()
        counted = ", ".join(f"{getattr(total, name)} {name}" for name in Account.__struct_fields__)
        lines = [f"{len(self.partitions)} partitions: {counted}; {self.transactions} transactions"]
        lines += [str(each) for each in self.findings]
        if self.count > len(self.findings):
            lines.append(f"and {self.count - len(self.findings)} more")
        return "\n".join(lines)


class _Piece(msgspec.Struct, frozen=True):
    """The batches that begin in ``[start, end)``, read by one task.

    The first piece of a partition includes the batch that contains ``start``; the others
    (``is_inner``) leave such a batch to the piece before.
    """

    partition: TopicPartition
    start: int
    end: int
    topic_id: str
    is_inner: bool


def audit(
    spark: "SparkSession", options: Mapping[str, str], *, unique: Sequence[str] = ()
) -> Report:
    """Audit the topics that ``options`` select; the options are those of ``format("ottla")``.

    ``unique`` holds expressions over the source's columns, such as ``"cast(key as string)"``;
    committed records that are equal in all of them are reported as duplicates.

    Raises:
        OptionError: an option is wrong. Refused, NoBroker: the cluster cannot be read.
    """
    parsed = SourceOptions.parse({**options, "isolation": "read_uncommitted"})
    scopes, pieces = _plan(parsed)
    results = _audit_partitions(spark, parsed, scopes, pieces).persist()
    try:
        summary = results.where("what <> 'transaction'").select("what", "detail")
        rows = summary.unionAll(_atomicity(results)).collect()  # one job for all of it
    finally:
        results.unpersist()
    accounts, findings, sums = _read_rows((row.what, row.detail) for row in rows)
    across = [_broken(each) for each in sums.broken]
    for partition, scope in scopes.items():
        if partition not in accounts:  # without batches a partition has no rows
            accounts[partition], more = _finish(PartitionAudit(*partition, scope))
            findings += more
    if unique:
        across += _duplicates(spark, options, unique)
    return Report(
        partitions=tuple(
            PartitionReport(*partition, scope.start, scope.end, accounts[partition])
            for partition, scope in sorted(scopes.items())
        ),
        findings=tuple(sorted(findings + across)[:FINDINGS_MAX]),
        count=sum(each.findings for each in accounts.values()) + len(across),
        transactions=sums.compared + sums.uncompared,
        uncompared=sums.uncompared,
    )


def _plan(options: SourceOptions) -> tuple[dict[TopicPartition, Scope], list[_Piece]]:
    """Determine the audited offsets, and cut them into pieces for tasks."""
    survey = Survey(options)
    view = survey.view()
    starts = survey.resolve(options.starting, "startingOffsets", view)
    ends = survey.resolve(options.ending, "endingOffsets", view)
    client = survey.client
    stable = client.list_offsets(dict.fromkeys(ends, LATEST), committed=True)
    compacted = _compacted(client, sorted(view.ids))
    scopes = {
        each: Scope(starts[each], end, min(stable[each], end), each.topic in compacted)
        for each, end in ends.items()
    }
    pieces = [
        _Piece(
            each.partition,
            start,
            min(start + OFFSETS_PER_TASK, each.end),
            each.topic_id,
            start > each.start,
        )
        for each in plan.ranges(starts, ends, view.ids)
        for start in range(each.start, each.end, OFFSETS_PER_TASK)
    ]
    return scopes, pieces


def _compacted(client: BrokerClient, topics: Sequence[str]) -> set[str]:
    """Return the topics from which compaction may remove records."""
    return requests.read_compacted(
        client.call(requests.describe_topics(topics, ["cleanup.policy"]))
    )


# -- facts: one row for each batch -------------------------------------------------


def _audit_partitions(
    spark: "SparkSession",
    options: SourceOptions,
    scopes: Mapping[TopicPartition, Scope],
    pieces: Sequence[_Piece],
) -> "DataFrame":
    """Read the facts in parallel, sort them, and audit each partition."""
    # One row, and one Spark partition, per piece.
    numbers = spark.range(0, len(pieces), 1, max(len(pieces), 1))
    facts = numbers.mapInArrow(partial(_read_pieces, options, pieces), _FACTS)
    together = facts.repartition("topic", "partition").sortWithinPartitions(
        "topic", "partition", "base_offset"
    )
    return together.mapInArrow(partial(_audit_task, dict(scopes)), _RESULTS)


def _read_pieces(
    options: SourceOptions, pieces: Sequence[_Piece], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run in a task: read the pieces whose numbers are in ``batches``."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            piece = pieces[number]
            yield from _in_batches(
                ((*piece.partition, *_values(fact)) for fact in _facts(options, piece)), _FACTS
            )


def _values(fact: BatchFact) -> tuple[object, ...]:
    return tuple(getattr(fact, name) for name in _FACT_FIELDS)


def _facts(options: SourceOptions, piece: _Piece) -> Iterator[BatchFact]:
    """Yield the facts of a piece, and one for offsets that retention removes meanwhile."""
    client = client_for(options.client)
    read = batch_reader(client, options, piece.partition)
    topic_id = parse_uuid(piece.topic_id) if piece.topic_id else None
    start = following = piece.start
    lowest = start if piece.is_inner else 0
    while start < piece.end:
        try:
            for chunk in read(
                piece.partition, start, piece.end, committed=False, topic_id=topic_id
            ):
                for fact in read_facts(chunk, lowest, piece.end):
                    following = fact.next_offset
                    yield fact
        except DataLost as lost:
            start, lowest = min(lost.log_start, piece.end), 0
            yield expiry(lost.offset, start)
        except (CorruptBatch, UnsupportedMagic, RecordTooLarge) as error:
            yield damage(following, following, str(error))
            return
        else:
            return


# -- results: one partition after the other --------------------------------------


def _audit_task(
    scopes: Mapping[TopicPartition, Scope], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run in a task: audit whole partitions, whose facts are sorted."""
    yield from _in_batches(_result_rows(scopes, batches), _RESULTS)


def _result_rows(
    scopes: Mapping[TopicPartition, Scope], batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[object, ...]]:
    current: TopicPartition | None = None
    auditing: PartitionAudit | None = None
    for partition, fact in _read_facts(batches):
        if partition != current:
            if auditing is not None:
                yield from _closed(auditing)
            current, auditing = partition, PartitionAudit(*partition, scopes[partition])
        assert auditing is not None
        for each in auditing.take(fact):
            yield _transaction_row(partition, each)
    if auditing is not None:
        yield from _closed(auditing)


def _read_facts(
    batches: Iterable[pa.RecordBatch],
) -> Iterator[tuple[TopicPartition, BatchFact]]:
    for batch in batches:
        for row in batch.to_pylist():
            partition = TopicPartition(row.pop("topic"), row.pop("partition"))
            yield partition, msgspec.convert(row, BatchFact)


def _transaction_row(partition: TopicPartition, each: Transaction) -> tuple[object, ...]:
    return (
        "transaction",
        *partition,
        each.first_offset,
        each.producer_id,
        each.producer_epoch,
        each.is_commit,
        "",
    )


def _closed(auditing: PartitionAudit) -> Iterator[tuple[object, ...]]:
    account, findings = _finish(auditing)
    for what, value in (("account", account), *(("finding", each) for each in findings)):
        detail = msgspec.json.encode((*auditing.partition, value)).decode()
        yield (what, *auditing.partition, 0, 0, 0, False, detail)


def _finish(auditing: PartitionAudit) -> tuple[Account, list[Finding]]:
    auditing.finish()
    return auditing.account, auditing.findings


class _PartialCommit(msgspec.Struct):
    """A transaction that is committed in only ``commits`` of its ``parts`` partitions."""

    topic: str
    partition: int
    offset: int
    producer_id: int
    producer_epoch: int
    commits: int
    parts: int


class _TransactionCounts(msgspec.Struct):
    """Transactions over all partitions: compared, indistinguishable, and not atomic."""

    compared: int = 0
    uncompared: int = 0
    broken: list[_PartialCommit] = msgspec.field(default_factory=list)


def _read_rows(
    rows: Iterable[tuple[str, str]],
) -> tuple[dict[TopicPartition, Account], list[Finding], _TransactionCounts]:
    """Decode the rows of the jobs: accounts of partitions, findings, transactions."""
    accounts: dict[TopicPartition, Account] = {}
    findings: list[Finding] = []
    sums = _TransactionCounts()
    decode = msgspec.json.decode
    for what, detail in rows:
        match what:
            case "account":
                topic, number, account = decode(detail, type=tuple[str, int, Account])
                accounts[TopicPartition(topic, number)] = account
            case "finding":
                findings.append(decode(detail, type=tuple[str, int, Finding])[2])
            case "broken":
                sums.broken.append(decode(detail, type=_PartialCommit))
            case "sums":
                counts = decode(detail, type=_TransactionCounts)
                sums.compared, sums.uncompared = counts.compared, counts.uncompared
    return accounts, findings, sums


def _in_batches(rows: Iterable[tuple[object, ...]], schema: str) -> Iterator[pa.RecordBatch]:
    """Put rows into record batches of the schema declared to Spark."""
    arrow = pa.schema(
        [(name, _ARROW[kind]) for name, kind in (each.split() for each in schema.split(","))]
    )
    held: list[tuple[object, ...]] = []
    for row in rows:
        held.append(row)
        if len(held) >= _ROWS:
            yield _batch(held, arrow)
            held = []
    if held:
        yield _batch(held, arrow)


_ARROW: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "boolean": pa.bool_(),
}


def _batch(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        pa.array(values, field.type)
        for values, field in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# -- across partitions ---------------------------------------------------------------


def _atomicity(results: "DataFrame") -> "DataFrame":
    """Compare transactions by producer and epoch.

    Returns `_TransactionCounts` and `_PartialCommit` as rows (what, detail).

    With transaction.version 2 every transaction has its own producer epoch.
    """
    from pyspark.sql import functions as f

    ends = results.where("what = 'transaction'")
    here = ends.groupBy("producer_id", "producer_epoch", "topic", "partition").agg(
        f.count("*").alias("times"),
        f.sum(f.col("is_commit").cast("int")).alias("commits"),
        f.min("offset").alias("offset"),
    )
    whole = here.groupBy("producer_id", "producer_epoch").agg(
        f.max("times").alias("times"),
        f.sum("times").alias("parts"),
        f.sum("commits").alias("commits"),
        f.min(f.struct("topic", "partition", "offset")).alias("first"),
    )
    is_one = f.col("times") == 1
    sums = whole.agg(
        f.coalesce(f.sum(f.when(is_one, 1).otherwise(0)), f.lit(0)).alias("compared"),
        f.coalesce(f.sum(f.when(is_one, 0).otherwise(f.col("times"))), f.lit(0)).alias(
            "uncompared"
        ),
    )
    broken = (
        whole.where("times = 1 and commits > 0 and commits < parts")
        .select("first.*", "producer_id", "producer_epoch", "commits", "parts")
        .limit(FINDINGS_MAX)
    )
    frames = [
        each.select(f.lit(what).alias("what"), f.to_json(f.struct("*")).alias("detail"))
        for what, each in (("sums", sums), ("broken", broken))
    ]
    return frames[0].unionAll(frames[1])


def _broken(each: _PartialCommit) -> Finding:
    detail = (
        f"the transaction of producer {each.producer_id} epoch {each.producer_epoch} is"
        f" committed in {each.commits} of {each.parts} partitions"
    )
    return Finding(each.topic, each.partition, each.offset, Problem.ATOMICITY, detail)


def _duplicates(
    spark: "SparkSession", options: Mapping[str, str], unique: Sequence[str]
) -> list[Finding]:
    """Return the first of each set of committed records that are equal in ``unique``."""
    from pyspark.sql import functions as f

    named = [f.expr(text).alias(f"unique{index}") for index, text in enumerate(unique)]
    rows = spark.read.format("ottla").options(**options).load()
    alike = (
        rows.select(*named, f.struct("topic", "partition", "offset").alias("place"))
        .groupBy(*(f"unique{index}" for index in range(len(unique))))
        .agg(f.min("place").alias("first"), f.count("*").alias("times"))
        .where("times > 1")
        .limit(FINDINGS_MAX)
    )
    return [
        Finding(
            each["first"].topic,
            each["first"].partition,
            each["first"].offset,
            Problem.DUPLICATE,
            f"{each.times} records have the same {', '.join(unique)}",
        )
        for each in alike.collect()
    ]
