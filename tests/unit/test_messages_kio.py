"""Our bytes are kio's bytes, both ways, for every message and version; the tables agree.

kio is another reader and writer of the same protocol, generated from Kafka's own definitions.
It never meets hostile bytes here: only what one of the two encoders wrote.
"""

import io
from pkgutil import resolve_name

import pytest
from hypothesis import given, settings
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from message_strategies import PLAUSIBLE, case_name, cases, messages
from tools.kafka_4_4 import NEW_APIS, RELEASES

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.codec import decode, encode
from ottla.protocol.headers import RequestHeader, ResponseHeader
from ottla.protocol.schema import Message

pytestmark = pytest.mark.slow

# Few by default, for there are six hundred cases; the nightly profile digs deeper.
# kio ends with Kafka 4.3; `tests/conformance/test_kafka_speaks_our_messages.py` covers the rest.
NEWER = {(key, release.version) for key, release in RELEASES.items()}
NEWER |= {(schema, 0) for schema, _, _ in NEW_APIS.values()}
EXAMPLES = max(5, settings.default.max_examples // 12)
OTHERS = {
    "ConsumerProtocolSubscription": "consumer_protocol_subscription",
    "ConsumerProtocolAssignment": "consumer_protocol_assignment",
    "RequestHeader": "request_header",
    "ResponseHeader": "response_header",
}
HEADERS: list[tuple[type[Message], int]] = [
    (RequestHeader, 1),
    (RequestHeader, 2),
    (ResponseHeader, 0),
    (ResponseHeader, 1),
]


def entity_of(struct: type[Message], version: int) -> type:
    name = OTHERS.get(struct.__name__) or api_key_map[struct.SCHEMA.api_key]
    kinds = schema_name_map[name][version]
    for kind in EntityType:
        if kind in kinds and kinds[kind].endswith(f":{struct.__name__}"):
            return resolve_name(kinds[kind])
    raise AssertionError(kinds)


def cases_of_kio() -> list[tuple[type[Message], int]]:
    keys = {key.value: key.name.lower() for key in ApiKey}
    return [
        case for case in cases() if (keys.get(case[0].SCHEMA.api_key), case[1]) not in NEWER
    ] + HEADERS


@pytest.mark.parametrize("case", cases_of_kio(), ids=case_name)
def test_the_bytes_are_those_of_kio(case: tuple[type[Message], int]) -> None:
    struct, version = case
    entity = entity_of(struct, version)
    read, write = entity_reader(entity), entity_writer(entity)

    @settings(max_examples=EXAMPLES)
    @given(messages(struct, version, PLAUSIBLE))
    def agrees(message: Message) -> None:
        ours = encode(message, version)
        theirs, size = read(ours, 0)
        assert size == len(ours)
        out = io.BytesIO()
        write(out, theirs)
        assert out.getvalue() == ours
        assert encode(decode(struct, version, out.getvalue()), version) == ours

    agrees()


def test_the_table_of_apis_is_that_of_kio() -> None:
    newer = {key: schema for key, (schema, _, _) in NEW_APIS.items()}
    assert {key.value: key.name.lower() for key in ApiKey} == {**api_key_map, **newer}
    for key, api in APIS.items():
        if key in newer:
            continue
        known = schema_name_map[key.name.lower()]
        spoken = list(range(api.versions[0], api.versions[1] + 1))
        added = [version for name, version in NEWER if name == key.name.lower()]
        assert spoken == sorted([*known, *added]), key
        for version in known:
            entity = resolve_name(known[version][EntityType.request])
            assert api.is_flexible(version) == entity.__flexible__, (key, version)
