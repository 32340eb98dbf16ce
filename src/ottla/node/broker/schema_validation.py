"""Connects schema validation of Produce with the node's registry and its dead-letter topics."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.api.produce.schema_checks import SchemaChecks, ValidationCounts
from ottla.api.produce.schema_rules import SchemaSource, StoredSchema
from ottla.formats.wire_format import SchemaRef
from ottla.node.broker.dead_letters import DeadLetterWriter
from ottla.observability.exposition import Family, Kind, Sample
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.reader import Record
from ottla.protocol.types import TopicPartition
from ottla.registry.rules.record_schemas import subjects_of, text_of, versions_of
from ottla.registry.store import SchemaStore
from ottla.runtime.worker import ThreadWorker
from ottla.sharing.ports import Origin

if TYPE_CHECKING:
    from ottla.node.broker.broker_handlers import BrokerDependencies


class RegistrySchemas:
    """The schemas of the node's registry, as far as its topic is replayed."""

    def __init__(self, store: SchemaStore) -> None:
        self._store = store

    @property
    def is_loaded(self) -> bool:
        """Whether it has read its topic."""
        return self._store.is_loaded

    async def wait_loaded(self, timeout_s: float) -> bool:
        """Wait for that; return whether it has."""
        return await self._store.wait_loaded(timeout_s)

    def find(self, ref: SchemaRef) -> StoredSchema | None:
        """Return a schema; None if it does not exist, or is deleted."""
        state = self._store.state
        versions = versions_of(state, ref)
        if not versions:
            return None
        text = text_of(state, versions)
        return StoredSchema(subjects_of(versions), None if text is None else SchemaSource(*text))


class ValidationDeadLetters:
    """Writes invalid records to dead-letter topics, by the rules of share groups' topics."""

    def __init__(self, broker: "BrokerDependencies") -> None:
        self._broker = broker
        self._writer: DeadLetterWriter | None = None

    async def write(
        self, topic: str, origin: TopicPartition, letters: Sequence[Record]
    ) -> ErrorCode:
        """Write letters. Raises NotLeader."""
        if self._writer is None:  # the links between brokers are made when they are needed
            links = self._broker.coordinator.transactions.links
            self._writer = DeadLetterWriter(self._broker.image, links, self._broker.config)
        return await self._writer.write(topic, Origin("", *origin), letters, may_exist=False)


def schema_checks(broker: "BrokerDependencies") -> SchemaChecks | None:
    """Return the schema validation of a broker; None where it serves no registry."""
    if broker.registry is None:
        return None
    checks = SchemaChecks(
        RegistrySchemas(broker.registry.store),
        ThreadWorker("schema-validation"),
        broker.context.ports.clock,
        ValidationDeadLetters(broker),
    )
    broker.registry.validation.append(checks.counts)
    return checks


def validation_families(counts: Iterable[ValidationCounts]) -> Iterable[Family]:
    """Yield the metrics of schema validation."""
    each = list(counts)
    for name, text, samples in (
        (
            "rejected",
            "Records rejected by schema validation, by topic.",
            [Sample((("topic", t),), n) for c in each for t, n in sorted(c.rejected.items())],
        ),
        (
            "dead_letter",
            "Records that schema validation wrote to a dead-letter topic, by topic of origin.",
            [Sample((("topic", t),), n) for c in each for t, n in sorted(c.dead_letters.items())],
        ),
    ):
        yield Family(f"ottla_schema_validation_{name}_records_total", Kind.COUNTER, text, samples)
