"""Error codes and faults: numbers are Kafka's, every fault has the code that clients receive."""

import inspect

import pytest

from ottla.protocol import faults
from ottla.protocol.errors import RETRIABLE, ErrorCode, is_retriable, name_of_code
from ottla.protocol.faults import Fault, ProtocolFault, ReplicaDamaged, StorageFailed, code_of

ALL = [
    item
    for _, item in inspect.getmembers(faults, inspect.isclass)
    if issubclass(item, Fault) and item is not Fault
]
# A subclass that adds a detail and no code is reported to clients as its parent is.
FAULTS = [each for each in ALL if "code" in vars(each)]


def test_the_codes_are_dense_and_end_where_kafka_4_4_ends() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 137))


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (-1, "UNKNOWN_SERVER_ERROR"),
        (0, "NONE"),
        (1, "OFFSET_OUT_OF_RANGE"),
        (3, "UNKNOWN_TOPIC_OR_PARTITION"),
        (6, "NOT_LEADER_OR_FOLLOWER"),
        (16, "NOT_COORDINATOR"),
        (17, "INVALID_TOPIC_EXCEPTION"),
        (35, "UNSUPPORTED_VERSION"),
        (45, "OUT_OF_ORDER_SEQUENCE_NUMBER"),
        (56, "KAFKA_STORAGE_ERROR"),
        (74, "FENCED_LEADER_EPOCH"),
        (87, "INVALID_RECORD"),
        (100, "UNKNOWN_TOPIC_ID"),
        (121, "INVALID_RECORD_STATE"),
        (133, "SHARE_SESSION_LIMIT_REACHED"),
    ],
)
def test_well_known_numbers(number: int, name: str) -> None:
    assert ErrorCode(number).name == name
    assert name_of_code(number) == name


def test_retriable_codes_are_kafkas() -> None:
    # The sum and the count pin the set as a whole; the samples say which way it fails.
    assert len(RETRIABLE) == 32
    assert sum(RETRIABLE) == 1828
    assert is_retriable(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert is_retriable(int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert not is_retriable(ErrorCode.REBALANCE_IN_PROGRESS)
    assert not is_retriable(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert not is_retriable(ErrorCode.NONE)


def test_a_number_of_a_later_version_is_named_and_not_retried() -> None:
    assert name_of_code(9999) == "UNKNOWN(9999)"
    assert not is_retriable(9999)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_every_fault_has_its_own_code(fault: type[Fault]) -> None:
    assert isinstance(vars(fault)["code"], ErrorCode)
    assert fault.code is not ErrorCode.NONE


def test_no_two_faults_share_a_code() -> None:
    # A failed directory takes all its replicas offline, a damaged batch only its own replica;
    # Kafka has one code for both.
    codes = [fault.code for fault in FAULTS if fault is not ReplicaDamaged]
    assert len(codes) == len(set(codes))


def test_a_fault_without_a_code_of_its_own_has_that_of_a_parent() -> None:
    for fault in set(ALL) - set(FAULTS):
        assert any(parent in FAULTS for parent in fault.__mro__[1:]), fault


def test_code_of_maps_faults_and_nothing_else() -> None:
    assert code_of(ProtocolFault("short")) is ErrorCode.INVALID_REQUEST
    assert code_of(StorageFailed("/data/a")) is ErrorCode.KAFKA_STORAGE_ERROR
    assert code_of(ValueError("ours")) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_failed_directory_is_named() -> None:
    fault = StorageFailed("/data/a", "fsync: Input/output error")
    assert fault.directory == "/data/a"
    assert str(fault) == "log directory /data/a: fsync: Input/output error"
