"""Every message in every version survives the way to bytes and back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from message_strategies import case_name, cases, messages

from ottla.protocol.codec import decode, decode_prefix, encode, encode_into
from ottla.protocol.schema import Message

pytestmark = pytest.mark.slow

# Few by default, for there are six hundred cases; the nightly profile digs deeper.
EXAMPLES = max(5, settings.default.max_examples // 12)


@pytest.mark.parametrize("case", cases(), ids=case_name)
def test_a_message_comes_back_as_it_was(case: tuple[type[Message], int]) -> None:
    struct, version = case

    @settings(max_examples=EXAMPLES)
    @given(messages(struct, version))
    def comes_back(message: Message) -> None:
        data = encode(message, version)
        assert decode(struct, version, data) == message
        assert decode(struct, version, memoryview(bytearray(data))) == message

    comes_back()


@pytest.mark.parametrize("case", cases()[::10], ids=case_name)
def test_a_message_may_stand_between_other_bytes(case: tuple[type[Message], int]) -> None:
    struct, version = case

    @settings(max_examples=EXAMPLES)
    @given(messages(struct, version), st.binary(max_size=4), st.binary(max_size=4))
    def stands(message: Message, before: bytes, after: bytes) -> None:
        out = bytearray(before)
        encode_into(out, message, version)
        stop = len(out)
        assert decode_prefix(struct, version, out + after, len(before)) == (message, stop)

    stands()


@pytest.mark.parametrize("case", cases(), ids=case_name)
def test_the_defaults_of_a_message_are_valid(case: tuple[type[Message], int]) -> None:
    struct, version = case
    assert decode(struct, version, encode(struct(), version)) == struct()
