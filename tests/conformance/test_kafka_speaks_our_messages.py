"""Every message in every version: Kafka's own classes read our bytes and write the same."""

from pathlib import Path
from random import Random

import pytest
from tests.fuzz.samples import sample

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.codec import decode, encode
from ottla.protocol.forwarding import IdentifiedEnvelope
from ottla.protocol.messages import request_class, response_class
from ottla.protocol.types import Uuid

pytestmark = pytest.mark.jvm

SAMPLES = 8
ECHO = Path(__file__).parent / "MessageEcho.java"

# Versions that we can speak and the tested server of Kafka cannot: they came after it.
NEWER = {
    (ApiKey.BROKER_HEARTBEAT, 2),
    (ApiKey.DESCRIBE_LOG_DIRS, 5),
    (ApiKey.API_VERSIONS, 5),
    (ApiKey.TXN_OFFSET_COMMIT, 6),
    (ApiKey.DELETE_GROUPS, 3),
    (ApiKey.STREAMS_GROUP_HEARTBEAT, 1),
    (ApiKey.STREAMS_GROUP_DESCRIBE, 1),
    (ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, 0),
    (ApiKey.UNREGISTER_CONTROLLER, 0),
}


def lines() -> list[str]:
    found = []
    for key, api in APIS.items():
        for role, struct in (("request", request_class(key)), ("response", response_class(key))):
            for version in range(api.versions[0], api.versions[1] + 1):
                random = Random(f"{struct.__name__}/{version}")
                for _ in range(SAMPLES):
                    body = encode(sample(struct, version, random), version).hex()
                    found.append(f"{key} {role} {version} {body or '-'}")
    return found


def test_kafka_reads_what_we_write_and_writes_the_same(kafka) -> None:
    assert unknown_to(kafka) == NEWER


def test_newest_client_reads_what_we_write_and_writes_the_same(kafka_clients) -> None:
    assert unknown_to(kafka_clients) == set()


def unknown_to(kafka) -> set[tuple[ApiKey, int]]:
    """Check every message that a Kafka can read; return those that it cannot."""
    sent = lines()
    answers = kafka.run(str(ECHO), stdin="\n".join(sent) + "\n").splitlines()
    assert len(answers) == len(sent)
    unknown = set()
    for line, answer in zip(sent, answers, strict=True):
        key, role, version, body = line.split()
        if answer == "unknown":
            unknown.add((ApiKey(int(key)), int(version)))
        else:
            assert answer == body, f"{ApiKey(int(key)).title} {role} v{version}"
    return unknown


def test_kafka_reads_an_envelope_that_has_an_id(kafka) -> None:
    request_id = Uuid(b"id of a request!")
    sent = IdentifiedEnvelope(b"request", b"principal", bytes(4), request_id, is_resent=True)
    line = f"{ApiKey.ENVELOPE} request 0 {encode(sent, 0).hex()}"
    (answer,) = kafka.run(str(ECHO), stdin=line + "\n").splitlines()
    # Kafka keeps tagged fields that it does not know.
    assert decode(IdentifiedEnvelope, 0, bytes.fromhex(answer)) == sent
