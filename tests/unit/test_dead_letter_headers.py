"""What the headers of dead letters say, by who wrote them."""

import pytest

from ottla.operations.dead_letter_headers import (
    DeadLetter,
    conventions_named,
    read_letter,
    redriven,
)
from ottla.protocol.records.reader import Header, Record
from ottla.protocol.types import Millis, Offset, TopicPartition

AT = TopicPartition("dlq.orders", 0)


def letter(**headers: bytes) -> DeadLetter:
    return read_letter(AT, record(headers))


def record(headers: dict[str, bytes]) -> Record:
    rows = tuple(Header(name, value) for name, value in headers.items())
    return Record(Offset(4), Millis(1000), b"k", b"v", rows)


KAFKA = {
    "trace": b"1",
    "__dlq.errors.topic": b"orders",
    "__dlq.errors.partition": b"2",
    "__dlq.errors.offset": b"41",
    "__dlq.errors.group": b"workers",
    "__dlq.errors.delivery.count": b"5",
    "__dlq.errors.message": b"Offset delivery count exceeded the threshold.",
}
EARLIER = {name.replace("__dlq", "_dlq"): value for name, value in KAFKA.items()}
SPRING = {
    "kafka_dlt-original-topic": b"orders",
    "kafka_dlt-original-partition": (2).to_bytes(4),
    "kafka_dlt-original-offset": (41).to_bytes(8),
    "kafka_dlt-original-consumer-group": b"workers",
    "kafka_dlt-exception-message": b"boom",
}


def prefixed(prefix: str, **values: bytes) -> dict[str, bytes]:
    origin = {"topic": b"orders", "partition": b"2", "offset": b"41"}
    return {f"{prefix}{name.replace('_', '.')}": value for name, value in (origin | values).items()}


@pytest.mark.parametrize(
    ("headers", "convention", "reason"),
    [
        (KAFKA, "kafka", "Offset delivery count exceeded the threshold."),
        (EARLIER, "ottla", "unknown"),
        (prefixed("ottla.", reason=b"not JSON"), "ottla", "not JSON"),
        (prefixed("__connect.errors.", exception_message=b"boom"), "connect", "boom"),
        (prefixed("__streams.errors.", message=b"boom"), "streams", "boom"),
        (SPRING, "spring", "boom"),
    ],
)
def test_headers_tell_the_origin_and_the_reason(
    headers: dict[str, bytes], convention: str, reason: str
) -> None:
    found = read_letter(AT, record(headers))
    assert found.convention is not None and found.convention.name == convention
    assert (found.topic, found.partition, found.offset) == ("orders", 2, 41)
    assert found.reason == reason
    only = read_letter(AT, record(headers), conventions_named(convention))
    assert only.topic == "orders"


def test_record_without_such_headers_has_no_origin() -> None:
    found = read_letter(AT, record({"trace": b"1"}))
    assert (found.convention, found.topic, found.reason) == (None, None, "unknown")


def test_redriven_record_has_its_own_headers_and_a_raised_count() -> None:
    found = read_letter(AT, record(KAFKA))
    once = redriven(found, found.record, Offset(0))
    assert once.headers == (Header("trace", b"1"), Header("ottla.dlq.redrives", b"1"))
    assert (once.key, once.value) == (b"k", b"v")
    again = read_letter(AT, once._replace(headers=(*once.headers, *found.record.headers)))
    assert again.redrives == 1
    assert redriven(again, again.record, Offset(0)).headers[-1].value == b"2"


def test_unknown_convention_is_rejected() -> None:
    with pytest.raises(ValueError, match="kafka, ottla, connect"):
        conventions_named("other")
