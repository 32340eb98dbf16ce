"""The generated modules are what the generator writes, and their schemas hold together."""

import msgspec
import pytest
from message_strategies import cases
from tools import generate_messages

from ottla.protocol.api_keys import APIS, ApiKey, Listener
from ottla.protocol.messages import request_class, response_class
from ottla.protocol.schema import Message

pytestmark = pytest.mark.slow


def test_the_generated_modules_are_current() -> None:
    assert generate_messages.differences(generate_messages.modules()) == []


def structs_of(message: type[Message]) -> list[type[Message]]:
    found = [message]
    for field in message.SCHEMA.fields:
        inner = (field.type.element or field.type).struct
        if inner is not None:
            found += structs_of(inner)
    return found


@pytest.mark.parametrize("key", ApiKey, ids=lambda key: key.title)
def test_a_message_and_its_schema_say_the_same(key: ApiKey) -> None:
    for message in (request_class(key), response_class(key)):
        assert message.SCHEMA.api_key == key
        assert message.SCHEMA.versions == APIS[key].versions
        assert message.SCHEMA.flexible == APIS[key].flexible
        for struct in structs_of(message):
            fields = struct.SCHEMA.fields
            assert [field.name for field in fields] == list(struct.__struct_fields__)
            assert all(
                field.default is not msgspec.NODEFAULT
                or field.default_factory is not msgspec.NODEFAULT
                for field in msgspec.structs.fields(struct)
            )
            tags = [field.tag for field in fields if field.tag is not None]
            assert len(tags) == len(set(tags))


def test_the_table_of_apis() -> None:
    assert len(APIS) == 91
    assert set(APIS) == set(ApiKey)
    assert not {4, 5, 6, 7} & set(ApiKey)
    on = {
        listener: [key for key, api in APIS.items() if listener in api.listeners]
        for listener in Listener
    }
    assert len(on[Listener.BROKER]) == 79
    assert len(on[Listener.CONTROLLER]) == 42
    assert ApiKey.VOTE not in on[Listener.BROKER]
    assert ApiKey.PRODUCE not in on[Listener.CONTROLLER]
    assert APIS[ApiKey.FETCH] == ((4, 18), 12, Listener.BROKER | Listener.CONTROLLER)
    assert APIS[ApiKey.SASL_HANDSHAKE].flexible is None


def test_there_are_as_many_messages_as_there_should_be() -> None:
    spoken = sum(api.versions[1] - api.versions[0] + 1 for api in APIS.values())
    assert len(cases()) == 2 * spoken + 2 * 4
