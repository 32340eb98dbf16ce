"""Random metadata logs: Kafka's image and ours agree, and so do the records of a snapshot."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.unit.metadata_model import draw_record, empty
from tests.unit.metadata_model_rules import play

from ottla.metadata.image import EMPTY
from ottla.metadata.replay import replay_all
from ottla.metadata.snapshot_records import snapshot_records
from ottla.protocol.internal.framing import Versioned, encode_framed
from ottla.protocol.internal.metadata_cluster import FeatureLevelRecord, NoOpRecord
from ottla.protocol.internal.metadata_records import decode_metadata_record
from ottla.protocol.schema import Message
from ottla.protocol.types import Uuid

pytestmark = pytest.mark.jvm

REPLAY = Path(__file__).parent / "MetadataReplay.java"
LOGS = 150
# Kafka writes eligible leader replicas into a snapshot only where the feature is on.
FIRST = [
    FeatureLevelRecord("metadata.version", 29),
    FeatureLevelRecord("eligible.leader.replicas.version", 1),
]
# Kafka's image depends on how the log is cut around these: a batch that configures and removes
# a topic keeps the configs, and one that removes the last user of a SCRAM mechanism may lose
# another that it adds. Each gets a batch of its own.
ALONE = ("RemoveTopicRecord", "RemoveUserScramCredentialRecord")


def draw_log(data: st.DataObject) -> list[Message]:
    model, log = empty(), list[Message](FIRST)
    for record in FIRST:
        play(model, record)
    for _ in range(data.draw(st.integers(0, 40))):
        log.append(draw_record(data, model))
        play(model, log[-1])
    return log


def logs() -> list[list[Message]]:
    found: list[list[Message]] = []

    @settings(
        max_examples=LOGS,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def collect(data: st.DataObject) -> None:
        found.append(draw_log(data))

    collect()
    return found


def lines(log: list[Message]) -> list[str]:
    written: list[str] = []
    for index, record in enumerate(log):
        is_alone = type(record).__name__ in ALONE
        # Batches of all sizes, the same in every run.
        if is_alone or index % 7 == 3:
            written.append("apply")
        version = record.SCHEMA.versions
        assert version is not None
        written.append(encode_framed(Versioned(record, version[1])).hex())
        if is_alone:
            written.append("apply")
    return [*written, "end"]


def unordered(values: list[bytes]) -> list[bytes]:
    """Forget the order of records, and of listeners and features within one."""
    return sorted(bytes(sorted(value)) for value in values)


def test_kafka_makes_the_same_image_of_a_log(kafka) -> None:
    drawn = logs()
    sent = "\n".join(line for log in drawn for line in lines(log))
    answer = kafka.run(str(REPLAY), stdin=sent + "\n").strip().removesuffix("end").split("end")
    assert len(answer) == len(drawn) >= LOGS
    for log, text in zip(drawn, answer, strict=True):
        theirs = [bytes.fromhex(line) for line in text.split()]
        ours = replay_all(EMPTY, log)
        assert replay_all(EMPTY, [decode_metadata_record(v).message for v in theirs]) == ours
        mine = [encode_framed(record) for record in snapshot_records(ours)]
        assert unordered(mine) == unordered(theirs)


def test_kafka_skips_the_ids_of_forwarded_requests(kafka) -> None:
    noted = NoOpRecord(Uuid(b"id of a request!"), request_api_key=19, reply=b"reply")
    sent = "\n".join(line for log in ([*FIRST, noted], FIRST) for line in lines(log))
    answer = kafka.run(str(REPLAY), stdin=sent + "\n").strip().removesuffix("end").split("end")
    with_note, without = (text.split() for text in answer)
    assert with_note == without != []
