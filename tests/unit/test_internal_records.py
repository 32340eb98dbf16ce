"""Internal records equal those of Apache Kafka byte for byte, and round-trip."""

import importlib
import pkgutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ottla.protocol.internal
from ottla.protocol.codec import decode, encode
from ottla.protocol.faults import ProtocolFault
from ottla.protocol.internal.consumer_group_records import ClassicMemberMetadata
from ottla.protocol.internal.framing import Pair
from ottla.protocol.internal.group_records import GROUP_RECORDS
from ottla.protocol.internal.metadata_records import METADATA_RECORDS
from ottla.protocol.internal.remote_log_records import REMOTE_LOG_RECORDS
from ottla.protocol.internal.share_state_records import SHARE_STATE_RECORDS
from ottla.protocol.internal.transaction_records import TRANSACTION_RECORDS
from ottla.protocol.schema import OWN_TAG_FIRST, Field, Kind, Message, Type, covers
from ottla.protocol.types import ZERO_UUID, Uuid

GOLDEN = Path(__file__).parent / "golden" / "kafka_internal_records.tsv"
ROWS = [line.split("\t") for line in GOLDEN.read_text().splitlines() if not line.startswith("#")]


def records() -> dict[str, type[Message]]:
    """Every record declared, without the structs inside records."""
    found = {}
    package = ottla.protocol.internal
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for item in vars(importlib.import_module(info.name)).values():
            if (
                isinstance(item, type)
                and issubclass(item, Message)
                and item is not Message
                and item.SCHEMA.versions
            ):
                found[item.__name__] = item
    return found


RECORDS = records()
VERSIONED = [
    (record, version)
    for record in RECORDS.values()
    for first, last in [record.SCHEMA.versions or (0, 0)]
    for version in range(first, last + 1)
]


def name_of(item: object) -> str:
    return item.__name__ if isinstance(item, type) else str(item)


def is_own(item: Field) -> bool:
    """Say whether Ottla alone has a field: Kafka skips it."""
    return item.tag is not None and item.tag >= OWN_TAG_FIRST


class Filler:
    """Fills a record with values that count up, as was done when the golden bytes were made."""

    def __init__(self) -> None:
        self.count = 0

    def struct(self, struct: type[Message], version: int) -> Message:
        message = struct()
        for item in struct.SCHEMA.fields:
            if covers(item.versions, version) and not is_own(item):
                setattr(message, item.name, self.value(item.type, version))
        return message

    def value(self, kind: Type, version: int) -> object:
        if kind.kind is Kind.ARRAY:
            assert kind.element is not None
            return [self.value(kind.element, version) for _ in range(2)]
        if kind.kind is Kind.STRUCT:
            assert kind.struct is not None
            return self.struct(kind.struct, version)
        self.count += 1
        number = self.count
        return {
            Kind.BOOL: True,
            Kind.INT8: number % 100,
            Kind.FLOAT64: number + 0.5,
            Kind.STRING: f"s{number}",
            Kind.BYTES: bytes([number]),
            Kind.UUID: number.to_bytes(8) + (number + 1).to_bytes(8),
        }.get(kind.kind, number)


def test_every_record_and_version_has_a_golden_row() -> None:
    golden = {(row[0], row[1]) for row in ROWS}
    declared = {(name_of(record), str(version)) for record, version in VERSIONED}
    assert declared == golden
    assert len(ROWS) == 108


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-v{row[1]}")
def test_record_bytes_equal_kafkas(row: list[str]) -> None:
    record, version = RECORDS[row[0]], int(row[1])
    default, filled = (bytes.fromhex(text.strip("-")) for text in row[2:])
    assert encode(record(), version).hex() == default.hex()
    message = Filler().struct(record, version)
    assert encode(message, version).hex() == filled.hex()
    assert decode(record, version, filled) == message
    assert decode(record, version, default) == record()


# A tagged field that has its default is not written, so bytes do not show what the default is.
TAGGED_DEFAULTS: dict[str, dict[str, object]] = {
    "RegisterBrokerRecord": {"cordoned_log_dirs": None, "log_dirs": []},
    "BrokerRegistrationChangeRecord": {
        "cordoned_log_dirs": None,
        "fenced": 0,
        "in_controlled_shutdown": 0,
        "log_dirs": [],
    },
    "AbortTransactionRecord": {"reason": None},
    "BeginTransactionRecord": {"name": None},
    "PartitionRecord": {
        "eligible_leader_replicas": None,
        "last_known_elr": None,
        "leader_recovery_state": 0,
    },
    "PartitionChangeRecord": {
        "adding_replicas": None,
        "directories": None,
        "eligible_leader_replicas": None,
        "isr": None,
        "last_known_elr": None,
        "leader": -2,
        "leader_recovery_state": -1,
        "removing_replicas": None,
        "replicas": None,
    },
    "OffsetCommitValue": {"topic_id": ZERO_UUID},
    "ConsumerGroupMetadataValue": {"metadata_hash": 0},
    "ConsumerGroupMemberMetadataValue": {"classic_member_metadata": ClassicMemberMetadata()},
    "StreamsGroupMetadataValue": {"last_assignment_configs": [], "validated_topology_epoch": -1},
    "StreamsGroupCurrentMemberAssignmentTaskIds": {"assignment_epochs": []},
    "TransactionLogValue": {
        "client_transaction_version": 0,
        "next_producer_epoch": -1,
        "next_producer_id": -1,
        "previous_producer_id": -1,
    },
    "ShareSnapshotValue": {"delivery_complete_count": -1},
    "ShareUpdateValue": {"delivery_complete_count": -1},
    "RemoteLogSegmentMetadataRecord": {"txn_index_empty": False},
    "RemoteLogSegmentMetadataSnapshotRecord": {"txn_index_empty": False},
}


def test_defaults_of_tagged_fields_equal_kafkas() -> None:
    found = {}
    for struct in sorted(Message.__subclasses__(), key=name_of):
        if struct.__module__.startswith("ottla.protocol.internal."):
            fields = [item for item in struct.SCHEMA.fields if not is_own(item)]
            tagged = [item.name for item in fields if item.tag is not None]
            if tagged:
                found[struct.__name__] = {name: getattr(struct(), name) for name in sorted(tagged)}
    assert found == TAGGED_DEFAULTS


# -- any value comes back ----------------------------------------------------

INTEGERS = {
    Kind.INT8: (-(2**7), 2**7 - 1),
    Kind.INT16: (-(2**15), 2**15 - 1),
    Kind.UINT16: (0, 2**16 - 1),
    Kind.INT32: (-(2**31), 2**31 - 1),
    Kind.UINT32: (0, 2**32 - 1),
    Kind.INT64: (-(2**63), 2**63 - 1),
}


def values(kind: Type, version: int) -> st.SearchStrategy[object]:
    if kind.kind is Kind.ARRAY:
        assert kind.element is not None
        return st.lists(values(kind.element, version), max_size=2)
    if kind.kind is Kind.STRUCT:
        assert kind.struct is not None
        return structs(kind.struct, version)
    if kind.kind in INTEGERS:
        return st.integers(*INTEGERS[kind.kind])
    return {
        Kind.BOOL: st.booleans(),
        Kind.FLOAT64: st.floats(allow_nan=False),
        Kind.STRING: st.text(max_size=4),
        Kind.BYTES: st.binary(max_size=4),
        Kind.UUID: st.binary(min_size=16, max_size=16).map(Uuid),
    }[kind.kind]


def field_values(item: Field, version: int) -> st.SearchStrategy[object]:
    found = values(item.type, version)
    return st.none() | found if covers(item.nullable, version) else found


def structs(struct: type[Message], version: int) -> st.SearchStrategy[Message]:
    fields = {
        item.name: field_values(item, version)
        for item in struct.SCHEMA.fields
        if covers(item.versions, version)
    }
    return st.builds(struct, **fields)


@pytest.mark.parametrize(("record", "version"), VERSIONED, ids=name_of)
def test_every_record_round_trips(record: type[Message], version: int) -> None:
    @settings(max_examples=15, deadline=None)
    @given(structs(record, version), st.data())
    def check(message: Message, data: st.DataObject) -> None:
        encoded = encode(message, version)
        assert decode(record, version, encoded) == message
        cut = data.draw(st.integers(0, max(len(encoded) - 1, 0)))
        if encoded:
            with pytest.raises(ProtocolFault):
                decode(record, version, encoded[:cut])
        with pytest.raises(ProtocolFault):
            decode(record, version, encoded + b"\0")

    check()


@pytest.mark.parametrize("record", RECORDS.values(), ids=name_of)
def test_unknown_record_version_is_rejected(record: type[Message]) -> None:
    first, last = record.SCHEMA.versions or (0, 0)
    for version in (first - 1, last + 1):
        with pytest.raises(ProtocolFault):
            decode(record, version, b"\0" * 64)


# -- the tables agree with what the records declare --------------------------


@pytest.mark.parametrize("table", [METADATA_RECORDS, REMOTE_LOG_RECORDS])
def test_single_records_are_listed_under_their_type(table: dict[int, type[Message]]) -> None:
    assert {number: record.SCHEMA.api_key for number, record in table.items()} == {
        number: number for number in table
    }


def test_metadata_record_types_equal_kafkas() -> None:
    assert set(range(29)) - set(METADATA_RECORDS) == {6, 13, 16}


@pytest.mark.parametrize(
    ("table", "numbers"),
    [
        (GROUP_RECORDS, set(range(24)) - {9, 18}),
        (TRANSACTION_RECORDS, {0}),
        (SHARE_STATE_RECORDS, {0, 1}),
    ],
)
def test_pairs_are_listed_under_their_type(table: dict[int, Pair], numbers: set[int]) -> None:
    assert set(table) == numbers
    for number, pair in table.items():
        assert pair.key.SCHEMA.api_key == pair.value.SCHEMA.api_key == number
        assert pair.key.__name__.removesuffix("Key") == pair.value.__name__.removesuffix("Value")


def test_every_record_is_in_one_table() -> None:
    framed = {*METADATA_RECORDS.values(), *REMOTE_LOG_RECORDS.values()}
    pairs = [*GROUP_RECORDS.values(), *TRANSACTION_RECORDS.values(), *SHARE_STATE_RECORDS.values()]
    listed = framed | {item for pair in pairs for item in (pair.key, pair.value)}
    unlisted = {name for name, record in RECORDS.items() if record not in listed}
    assert unlisted == {
        "DefaultPrincipalData",
        "KRaftVersionRecord",
        "LeaderChangeMessage",
        "SnapshotFooterRecord",
        "SnapshotHeaderRecord",
        "VotersRecord",
    }
