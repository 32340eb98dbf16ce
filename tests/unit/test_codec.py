"""Guarantees of the codec for code that builds messages."""

import subprocess
import sys

import pytest

from ottla.protocol.codec import decode, encode, encode_into
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.schema import Message
from ottla.protocol.types import Uuid


def produce(records: bytes) -> ProduceRequest:
    partition = PartitionProduceData(0, records)
    return ProduceRequest(topic_data=[TopicProduceData("t", partition_data=[partition])])


@pytest.mark.parametrize("version", [3, 9])
def test_records_are_views_into_the_frame(version: int) -> None:
    frame = bytearray(encode(produce(b"batch"), version))
    request = decode(ProduceRequest, version, frame)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    frame[frame.index(b"batch")] = ord("m")
    assert records == b"match"


def test_decoded_bytes_and_strings_are_copies() -> None:
    frame = bytearray(encode(SaslAuthenticateRequest(b"secret"), 0))
    request = decode(SaslAuthenticateRequest, 0, frame)
    frame[:] = bytes(len(frame))
    assert request.auth_bytes == b"secret"


def test_fields_missing_in_a_version_decode_to_defaults() -> None:
    response = FindCoordinatorResponse(throttle_time_ms=5, host="h", coordinators=[Coordinator()])
    old = decode(FindCoordinatorResponse, 0, encode(response, 0))
    assert old == FindCoordinatorResponse(host="h", error_message="")
    new = decode(FindCoordinatorResponse, 6, encode(response, 6))
    assert new == FindCoordinatorResponse(throttle_time_ms=5, coordinators=[Coordinator()])


def test_default_values_are_not_shared() -> None:
    for make in (FetchResponse, lambda: decode(FetchResponse, 4, encode(FetchResponse(), 4))):
        first, second = make(), make()
        first.node_endpoints.append(object())  # type: ignore[arg-type]
        assert second.node_endpoints == []
    data = encode(
        FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData()])]), 12
    )
    one, two = (decode(FetchResponse, 12, data).responses[0].partitions[0] for _ in range(2))
    one.current_leader.leader_id = 7
    assert two.current_leader.leader_id == -1


def test_tagged_field_at_its_default_is_not_written() -> None:
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData()])])
    plain = encode(response, 12)
    response.responses[0].partitions[0].current_leader.leader_id = 1
    # tag, size, two int32, no further tags; the count of tags was there before
    assert len(encode(response, 12)) == len(plain) + 2 + 9


def test_error_code_is_encoded_as_a_number() -> None:
    response = FindCoordinatorResponse(error_code=ErrorCode.NOT_COORDINATOR)
    assert encode(response, 0)[:2] == (16).to_bytes(2)


@pytest.mark.parametrize("version", [8, 12])
def test_number_arrays_of_any_length_round_trip(version: int) -> None:
    for count in (0, 1, 63, 64, 65, 127, 128, 5000):
        partition = MetadataResponsePartition(replica_nodes=list(range(count)))
        response = MetadataResponse(topics=[MetadataResponseTopic(partitions=[partition])])
        assert decode(MetadataResponse, version, encode(response, version)) == response


def topics(**partition: object) -> MetadataResponse:
    inner = MetadataResponsePartition(**partition)  # type: ignore[arg-type]
    return MetadataResponse(topics=[MetadataResponseTopic(partitions=[inner])])


@pytest.mark.parametrize(
    ("message", "version", "fault"),
    [
        (FindCoordinatorRequest(key=None), 0, "key: null, and the field is not nullable"),
        (FindCoordinatorRequest(key=None), 3, "key: null, and the field is not nullable"),
        (FindCoordinatorRequest(key_type=128), 1, "key_type: 128 does not fit int8"),
        (FindCoordinatorRequest(key_type=None), 1, "key_type: null"),
        (FindCoordinatorRequest(key="x" * 0x8000), 0, "key: '.* does not fit string"),
        (FindCoordinatorRequest(key="x" * 0x8000), 3, "key: '.* does not fit string"),
        (FindCoordinatorRequest(key="\ud800"), 3, "key: '.*' does not fit string"),
        (FindCoordinatorRequest(key=b"bytes"), 0, "key: b'bytes' is no string"),
        (
            FindCoordinatorRequest(coordinator_keys=["a", 3]),
            4,
            r"coordinator_keys\[1\]: 3 is no str",
        ),
        (FindCoordinatorRequest(coordinator_keys=None), 4, "coordinator_keys: null"),
        (topics(leader_id="1"), 12, r"topics\[0\].partitions\[0\].leader_id: '1' is no int32"),
        (topics(isr_nodes=[1, 1 << 31]), 12, r"isr_nodes\[1\]: 2147483648 does not fit int32"),
        (topics(isr_nodes=[1, None]), 8, r"isr_nodes\[1\]: null"),
        (MetadataResponse(topics=[None]), 12, r"topics\[0\]: null"),
        (
            MetadataResponse(topics=[MetadataResponseTopic(is_internal=None)]),
            12,
            "is_internal: null",
        ),
        (
            MetadataRequest(topics=[MetadataRequestTopic(Uuid(b"short"))]),
            12,
            "topic_id: b'short' does",
        ),
        (MetadataRequest(topics=[MetadataRequestTopic(Uuid(bytes(17)))]), 12, "topic_id: .* does"),
        (SaslAuthenticateRequest(auth_bytes="text"), 0, "auth_bytes: 'text' is no bytes"),
    ],
)  # type: ignore[arg-type]
def test_encode_error_names_the_field(message: Message, version: int, fault: str) -> None:
    out = bytearray(b"before")
    with pytest.raises(ValueError, match=f"{type(message).__name__} v{version}: .*{fault}"):
        encode_into(out, message, version)
    assert out == b"before"


def test_encode_error_names_the_tagged_field() -> None:
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData()])])
    response.responses[0].partitions[0].current_leader.leader_id = 1 << 31
    with pytest.raises(ValueError, match=r"current_leader\.leader_id: 2147483648 does not fit"):
        encode(response, 12)


def test_undeclared_version_is_not_written() -> None:
    for version in (-1, 7):
        with pytest.raises(ValueError, match=f"FindCoordinatorRequest has no version {version}"):
            encode(FindCoordinatorRequest(), version)
    with pytest.raises(ValueError, match="Coordinator has no version 4"):
        encode(Coordinator(), 4)


def test_importing_the_protocol_loads_no_message() -> None:
    """The cost itself is in the benchmarks; this keeps its cause from coming back."""
    program = (
        "import sys, ottla.protocol, ottla.protocol.frames, ottla.protocol.messages;"
        "print(*sorted(n for n in sys.modules if n.startswith('ottla.protocol.messages.')),"
        "*sorted({'kio', 'Cython', 'asyncio', 'dataclasses'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
