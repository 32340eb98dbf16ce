"""Checks the batches of topics with schema validation, before they are appended.

Small batches of topics that validate ids are checked while the request is handled. The others
(large batches, payloads, names of records, batches with dead letters) are checked by a worker in a
task; later requests of their producers wait behind it (`append_order.py`). Rules are in
`schema_rules.py`; this module asks the registry, gives work to the worker and writes dead letters.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from ottla.api.produce.record_validation import RECORD_ERRORS_MAX, RecordError, RecordsRejected
from ottla.api.produce.schema_dead_letters import dead_letters, without_records
from ottla.api.produce.schema_rules import (
    BadRecord,
    DecodedSchema,
    SchemaScan,
    SchemaSource,
    StoredSchema,
    scan_batch,
)
from ottla.api.produce.work import Prepared, SchemaJob, ThinnedBatch
from ottla.formats.payload_checks import payload_check
from ottla.formats.wire_format import SchemaRef
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault, NotLeader, RequestTimedOut
from ottla.protocol.records.batch import read_header
from ottla.protocol.records.compression import UnpacksToMore
from ottla.protocol.records.reader import Record
from ottla.protocol.types import TopicPartition
from ottla.runtime.ports import Clock, Worker
from ottla.schemas.contract import InvalidSchema
from ottla.schemas.languages import parse

UNPACKED_AT_ONCE_MAX: Final = 32 << 10
"""Bytes of records that are checked while a request is handled: about 3 ms."""
LOADING_S: Final = 5.0
"""How long a request waits for the registry to read its topic after a start."""
REFS_PER_PIECE: Final = 500
"""Schemas looked up before other requests are served."""
WORK_MS_MAX: Final = 10_000
"""How long the check of one batch may take; what is not checked by then is rejected."""
PARSED_MAX: Final = 500
PARSED_CHARACTERS_MAX: Final = 16 << 20
LETTER_ATTEMPTS: Final = 50
LETTER_PAUSE_S: Final = 0.1
"""How often, and after which pause, a dead letter is tried while its topic is created."""
TOPICS_COUNTED_MAX: Final = 1_000
DEAD_LETTER_PREFIX: Final = "dlq."


class Schemas(Protocol):
    """The registry of the node."""

    @property
    def is_loaded(self) -> bool:
        """Whether it has read its topic."""
        ...

    async def wait_loaded(self, timeout_s: float) -> bool:
        """Wait for that; return whether it has."""
        ...

    def find(self, ref: SchemaRef) -> StoredSchema | None:
        """Return a schema; None if it does not exist."""
        ...


class DeadLetters(Protocol):
    """Writes to dead-letter topics."""

    async def write(
        self, topic: str, origin: TopicPartition, letters: Sequence[Record]
    ) -> ErrorCode:
        """Write letters, replicated to all in-sync replicas. Raises Fault."""
        ...


class ValidationCounts:
    """Records by topic that were rejected, and that became dead letters."""

    def __init__(self) -> None:
        self.rejected: Counter[str] = Counter()
        self.dead_letters: Counter[str] = Counter()

    def add(self, counter: Counter[str], topic: str, count: int) -> None:
        """Count records; those of further topics are counted together."""
        if topic not in counter and len(counter) >= TOPICS_COUNTED_MAX:
            topic = "other"
        counter[topic] += count


class SchemaChecks:
    """Checks batches by the schemas of the node's registry."""

    def __init__(
        self, schemas: Schemas, worker: Worker, clock: Clock, letters: DeadLetters | None = None
    ) -> None:
        self._schemas = schemas
        self._worker = worker
        self._clock = clock
        self._letters = letters
        self._parsed = _ParsedSchemas()
        self.counts = ValidationCounts()

    def at_once(self, jobs: Iterable[SchemaJob]) -> dict[int, Prepared] | None:
        """Return the results of batches, by slot; None if a worker has to check one."""
        if not self._schemas.is_loaded:
            return None
        prepared: dict[int, Prepared] = {}
        for job in jobs:
            if job.rules.needs_schemas or len(job.batch) > UNPACKED_AT_ONCE_MAX:
                return None
            try:
                scan = scan_batch(job.batch, job.rules, UNPACKED_AT_ONCE_MAX)
            except UnpacksToMore:
                return None
            bad = scan.judge(job.partition.topic, job.rules, self._find(scan.refs), _no_schemas)
            if bad and self._is_thinned(job):
                return None
            prepared[job.slot] = self._rejected(job, bad) if bad else job.batch
        return prepared

    async def apart(self, jobs: Iterable[SchemaJob]) -> dict[int, Prepared]:
        """Return the results of batches, by slot. Dead letters are written when it returns."""
        if not await self._schemas.wait_loaded(LOADING_S):
            fault = RequestTimedOut("the schema registry has not read its topic yet")
            return {job.slot: fault for job in jobs}
        return {job.slot: await self._check(job) for job in jobs}

    async def _check(self, job: SchemaJob) -> Prepared:
        scan = await self._worker.run(partial(scan_batch, job.batch, job.rules))
        stored: dict[SchemaRef, StoredSchema] = {}
        refs = scan.refs
        for first in range(0, len(refs), REFS_PER_PIECE):
            stored |= self._find(refs[first : first + REFS_PER_PIECE])
            await asyncio.sleep(0)
        bad = await self._worker.run(partial(self._judge, job, scan, stored))
        if not bad:
            return job.batch
        if not self._is_thinned(job):
            return self._rejected(job, bad)
        try:
            return await self._thin(job, bad)
        except Fault as fault:
            return fault

    def _find(self, refs: Iterable[SchemaRef]) -> dict[SchemaRef, StoredSchema]:
        pairs = ((ref, self._schemas.find(ref)) for ref in refs)
        return {ref: schema for ref, schema in pairs if schema is not None}

    def _judge(
        self, job: SchemaJob, scan: SchemaScan, stored: Mapping[SchemaRef, StoredSchema]
    ) -> list[BadRecord]:
        """Decide about the records, in the worker."""
        until = self._clock.monotonic() + WORK_MS_MAX
        return scan.judge(
            job.partition.topic,
            job.rules,
            stored,
            self._parsed.parse,
            lambda: self._clock.monotonic() < until,
        )

    def _rejected(self, job: SchemaJob, bad: Sequence[BadRecord]) -> RecordsRejected:
        """Return the error of a batch with bad records."""
        self.counts.add(self.counts.rejected, job.partition.topic, len(bad))
        return _rejection(bad)

    # -- dead letters --------------------------------------------------------------

    def _is_thinned(self, job: SchemaJob) -> bool:
        """Return whether bad records of a batch become dead letters.

        Not those of a transaction: it may be aborted, and a dead letter stays.
        """
        has_topic = job.rules.dead_letters is not None and self._letters is not None
        return has_topic and not read_header(job.batch).is_transactional

    async def _thin(self, job: SchemaJob, bad: Sequence[BadRecord]) -> Prepared:
        """Write dead letters; return the batch without their records.

        A batch that is in the log already, or that its producer may not append, has none written.
        Raises Fault: the letters could not be written; the batch is not appended then.
        """
        header = read_header(job.batch)
        if header.producer_id >= 0:
            duplicate = job.partition.log.producers.check(header, from_client=True)
            if duplicate is not None:
                return job.batch
        topic = job.rules.dead_letters or f"{DEAD_LETTER_PREFIX}{job.partition.topic}"
        pieces = partial(_pieces, job, bad, self._clock)
        for letters in await self._worker.run(pieces):
            await self._write(topic, job, bad, letters)
        self.counts.add(self.counts.dead_letters, job.partition.topic, len(bad))
        return ThinnedBatch(await self._worker.run(partial(without_records, job.batch, bad)))

    async def _write(
        self, topic: str, job: SchemaJob, bad: Sequence[BadRecord], letters: Sequence[Record]
    ) -> None:
        assert self._letters is not None
        for _ in range(LETTER_ATTEMPTS):
            try:
                code = await self._letters.write(topic, job.at, letters)
            except NotLeader:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if code is ErrorCode.NONE:
                return
            if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                why = f"; they cannot be written to the dead-letter topic {topic}: {code.name}"
                self.counts.add(self.counts.rejected, job.partition.topic, len(bad))
                raise _rejection(bad, why)
            await asyncio.sleep(LETTER_PAUSE_S)
        raise RequestTimedOut(f"the dead-letter topic {topic} has no leader")


def _rejection(bad: Sequence[BadRecord], why: str = "") -> RecordsRejected:
    errors = [RecordError(index, reason) for index, reason in bad[:RECORD_ERRORS_MAX]]
    message = f"One or more records have been rejected due to {len(bad)} record errors in total"
    return RecordsRejected(f"{message}, the first is: {bad[0].reason}{why}", errors)


def _pieces(job: SchemaJob, bad: Sequence[BadRecord], clock: Clock) -> list[list[Record]]:
    return list(dead_letters(job.batch, bad, job.at, clock.now()))


def _no_schemas(source: SchemaSource) -> DecodedSchema:
    raise AssertionError("a check of ids parses no schema")


class _ParsedSchemas:
    """The schemas that were parsed last; used by the worker's thread alone."""

    def __init__(self) -> None:
        self._schemas: OrderedDict[SchemaSource, DecodedSchema | ValueError] = OrderedDict()
        self._characters = 0

    def parse(self, source: SchemaSource) -> DecodedSchema:
        """Return a parsed schema. Raises ValueError."""
        schema = self._schemas.get(source)
        if schema is None:
            schema = self._schemas[source] = _parsed(source)
            self._characters += _size(source)
            while len(self._schemas) > PARSED_MAX or (
                self._characters > PARSED_CHARACTERS_MAX and len(self._schemas) > 1
            ):
                oldest, _ = self._schemas.popitem(last=False)
                self._characters -= _size(oldest)
        else:
            self._schemas.move_to_end(source)
        if isinstance(schema, ValueError):
            raise schema
        return schema


def _parsed(source: SchemaSource) -> DecodedSchema | ValueError:
    try:
        schema = parse(source.schema_type, source.text, dict(source.references))
        return DecodedSchema(*payload_check(schema))
    except InvalidSchema as error:
        return ValueError(f"the schema cannot be used: {error}")
    except ValueError as error:
        return error


def _size(source: SchemaSource) -> int:
    return len(source.text) + sum(len(text) for _, text in source.references)
