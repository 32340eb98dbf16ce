"""One set of scenarios for every client: what each can do is done, against a node of ours.

With ``OTTLA_CLIENTS_BOOTSTRAP=host:port`` the same scenarios run against whatever serves there;
that is how they are known to describe Apache Kafka.
"""

import time
from collections.abc import Callable

import pytest
from client_contract import (
    ADMIN,
    BINARY_HEADERS,
    CONFIGS,
    CONSUMER_GROUPS,
    DELETE_RECORDS,
    GROUPS,
    HEADERS,
    IDEMPOTENCE,
    LARGE,
    NULL_HEADERS,
    OFFSETS,
    PARTITIONS,
    TIMES,
    TOMBSTONES,
    TRANSACTIONS,
    Client,
    Record,
    Refused,
    Sending,
    Start,
    Topic,
)
from client_fixtures import ALL, Broker, broker, client, topic
from tests.patience import SECONDS_MAX

assert broker and client and topic  # fixtures

# What client libraries warn of themselves is theirs.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

BEGINNING = Start()
MESSAGE_TOO_LARGE = 10
UNKNOWN_TOPIC = 3
TOPIC_EXISTS = 36


def needs(*wanted: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The clients that can do all this run the scenario; the others do not have it."""

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        each = [made for made in ALL if set(wanted) <= made.can]
        return pytest.mark.parametrize("client", [made.param() for made in each], indirect=True)(
            test
        )

    return mark


def each_codec(test: Callable[..., None]) -> Callable[..., None]:
    pairs = [made.param(codec) for made in ALL for codec in made.codecs]
    return pytest.mark.parametrize(("client", "codec"), pairs, indirect=["client"])(test)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@needs(ADMIN)
def test_a_topic_is_made_listed_refused_twice_and_deleted(client: Client, topic: str) -> None:
    client.create_topic(Topic(topic, partitions=3))
    wait_until(lambda: topic in client.topics())
    with pytest.raises(Refused) as refused:
        client.create_topic(Topic(topic))
    assert refused.value.code == TOPIC_EXISTS
    client.delete_topic(topic)
    wait_until(lambda: topic not in client.topics())
    with pytest.raises(Refused) as refused:
        client.delete_topic(topic)
    assert refused.value.code == UNKNOWN_TOPIC


@each_codec
def test_what_is_sent_comes_back_in_every_codec(
    client: Client, broker: Broker, topic: str, codec: str
) -> None:
    broker.create(topic)
    sent = [Record(b"value %d " % i * 30, key=b"key %d" % i) for i in range(50)]
    reply = client.produce(topic, sent, Sending(codec=codec))
    assert reply == [(0, i) for i in range(50)]
    got = client.consume(topic, 0, BEGINNING, 50)
    assert [each.content for each in got] == [each.content for each in sent]
    assert [each.offset for each in got] == list(range(50))
    now = time.time() * 1000
    assert all(abs(each.timestamp - now) < 60_000 for each in got if each.timestamp is not None)


@needs()
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_level_of_acknowledgement(
    client: Client, broker: Broker, topic: str, acks: int
) -> None:
    broker.create(topic)
    client.produce(topic, [Record(b"%d" % i) for i in range(10)], Sending(acks=acks))
    got = client.consume(topic, 0, BEGINNING, 10)
    assert [each.value for each in got] == [b"%d" % i for i in range(10)]


@needs(IDEMPOTENCE)
def test_an_idempotent_producer(client: Client, broker: Broker, topic: str) -> None:
    broker.create(topic)
    sent = [Record(b"%d" % i) for i in range(200)]
    reply = client.produce(topic, sent, Sending(idempotent=True))
    assert reply == [(0, i) for i in range(200)]
    assert [each.value for each in client.consume(topic, 0, BEGINNING, 200)] == [
        each.value for each in sent
    ]


@needs(HEADERS)
def test_headers_come_back_in_order(client: Client, broker: Broker, topic: str) -> None:
    broker.create(topic)
    headers = (("trace", b"1"), ("empty", b""), ("last", b"2"))
    client.produce(topic, [Record(b"v", headers=headers)])
    assert client.consume(topic, 0, BEGINNING, 1)[0].headers == headers


@needs(BINARY_HEADERS)
def test_a_header_of_any_bytes(client: Client, broker: Broker, topic: str) -> None:
    broker.create(topic)
    headers = (("bytes", bytes(range(256))),)
    client.produce(topic, [Record(b"v", headers=headers)])
    assert client.consume(topic, 0, BEGINNING, 1)[0].headers == headers


@needs(NULL_HEADERS)
def test_a_header_without_a_value(client: Client, broker: Broker, topic: str) -> None:
    broker.create(topic)
    client.produce(topic, [Record(b"v", headers=(("nothing", None),))])
    assert client.consume(topic, 0, BEGINNING, 1)[0].headers == (("nothing", None),)


@needs(TOMBSTONES)
def test_a_null_key_and_a_null_value_are_not_empty_ones(
    client: Client, broker: Broker, topic: str
) -> None:
    broker.create(topic)
    sent = [Record(b"no key"), Record(None, key=b"tombstone"), Record(b"", key=b"empty value")]
    client.produce(topic, sent)
    got = client.consume(topic, 0, BEGINNING, 3)
    assert [(each.key, each.value) for each in got] == [(each.key, each.value) for each in sent]


@needs()
def test_reading_begins_at_an_offset(client: Client, broker: Broker, topic: str) -> None:
    broker.create(topic)
    client.produce(topic, [Record(b"%d" % i) for i in range(20)])
    got = client.consume(topic, 0, Start(offset=13), 7)
    assert [(each.offset, each.value) for each in got] == [(i, b"%d" % i) for i in range(13, 20)]


@needs(TIMES)
def test_reading_begins_at_a_time(client: Client, broker: Broker, topic: str) -> None:
    broker.create(topic)
    first = int(time.time() * 1000) - 100_000
    client.produce(topic, [Record(b"%d" % i, timestamp=first + 1000 * i) for i in range(20)])
    got = client.consume(topic, 0, Start(timestamp=first + 4_500), 5)
    assert [each.value for each in got] == [b"%d" % i for i in range(5, 10)]
    assert [each.timestamp for each in got] == [first + 1000 * i for i in range(5, 10)]


@needs(OFFSETS)
def test_offsets_are_listed(client: Client, broker: Broker, topic: str) -> None:
    broker.create(topic)
    assert client.offsets(topic, 0) == (0, 0)
    client.produce(topic, [Record(b"x") for _ in range(7)])
    assert client.offsets(topic, 0) == (0, 7)


@needs(OFFSETS, TIMES)
def test_offsets_are_listed_by_time(client: Client, broker: Broker, topic: str) -> None:
    broker.create(topic)
    first = int(time.time() * 1000) - 100_000
    client.produce(topic, [Record(b"x", timestamp=first + 1000 * i) for i in range(5)])
    assert client.offset_at(topic, 0, first - 1) == 0
    assert client.offset_at(topic, 0, first + 2000) == 2
    assert client.offset_at(topic, 0, first + 2001) == 3


@needs(DELETE_RECORDS, OFFSETS)
def test_records_are_deleted_up_to_an_offset(client: Client, broker: Broker, topic: str) -> None:
    broker.create(topic)
    client.produce(topic, [Record(b"%d" % i) for i in range(10)])
    assert client.delete_records(topic, 0, 4) == 4
    assert client.offsets(topic, 0) == (4, 10)
    assert client.consume(topic, 0, Start(offset=4), 1)[0].value == b"4"


@needs(LARGE)
def test_a_record_of_almost_a_megabyte(client: Client, broker: Broker, topic: str) -> None:
    broker.create(topic)
    value = bytes(i * 7919 % 251 for i in range(1000)) * 900
    client.produce(topic, [Record(value), Record(b"after")])
    got = client.consume(topic, 0, BEGINNING, 2)
    assert got[0].value == value and got[1].value == b"after"


@needs(LARGE)
def test_a_record_that_is_too_large_is_refused(client: Client, broker: Broker, topic: str) -> None:
    broker.create(topic)
    with pytest.raises(Refused) as refused:
        client.produce(topic, [Record(b"x" * 2_000_000)])
    assert refused.value.code == MESSAGE_TOO_LARGE
    client.produce(topic, [Record(b"small enough")])
    assert client.consume(topic, 0, BEGINNING, 1)[0].value == b"small enough"


@needs(CONFIGS, ADMIN)
def test_topic_settings_are_described_and_changed(client: Client, topic: str) -> None:
    client.create_topic(Topic(topic, config={"retention.ms": "86400000"}))
    wait_until(lambda: client.config(topic).get("retention.ms") == "86400000")
    assert client.config(topic)["cleanup.policy"] == "delete"
    client.set_config(topic, "max.message.bytes", "2000")
    wait_until(lambda: client.config(topic)["max.message.bytes"] == "2000")


@needs(LARGE)
def test_a_topic_may_allow_larger_records(client: Client, broker: Broker, topic: str) -> None:
    broker.create(topic, config={"max.message.bytes": "3000000"})
    client.produce(topic, [Record(b"x" * 2_000_000)])
    got = client.consume(topic, 0, BEGINNING, 1)
    assert got[0].value == b"x" * 2_000_000


@needs()
def test_a_topic_that_is_not_there_is_made_on_first_use(client: Client, topic: str) -> None:
    replies = client.produce(topic, [Record(b"first")], Sending(acks=1))
    assert [partition for partition, _ in replies] == [0]
    assert client.consume(topic, 0, BEGINNING, 1)[0].value == b"first"


@needs(PARTITIONS)
def test_many_partitions_keep_their_records_apart(
    client: Client, broker: Broker, topic: str
) -> None:
    broker.create(topic, partitions=30)
    sent = [Record(b"%d" % i, partition=i % 30) for i in range(90)]
    replies = client.produce(topic, sent)
    assert sorted(replies) == sorted((p, o) for p in range(30) for o in range(3))
    for partition in (0, 13, 29):
        got = client.consume(topic, partition, BEGINNING, 3)
        assert [each.value for each in got] == [b"%d" % (partition + 30 * i) for i in range(3)]


@needs(GROUPS)
def test_a_group_goes_on_where_it_committed(client: Client, broker: Broker, topic: str) -> None:
    broker.demand_groups()
    broker.create(topic)
    client.produce(topic, [Record(b"%d" % i) for i in range(10)])
    first = client.consume_in_group(topic, f"g-{topic}", 4)
    assert [each.value for each in first] == [b"0", b"1", b"2", b"3"]
    then = client.consume_in_group(topic, f"g-{topic}", 6)
    assert [each.value for each in then] == [b"%d" % i for i in range(4, 10)]


@needs(CONSUMER_GROUPS)
def test_a_consumer_group_goes_on_where_it_committed(
    client: Client, broker: Broker, topic: str
) -> None:
    """The protocol of KIP-848."""
    broker.demand_groups()
    broker.create(topic)
    client.produce(topic, [Record(b"%d" % i) for i in range(10)])
    first = client.consume_in_consumer_group(topic, f"c-{topic}", 4)
    assert [each.value for each in first] == [b"0", b"1", b"2", b"3"]
    then = client.consume_in_consumer_group(topic, f"c-{topic}", 6)
    assert [each.value for each in then] == [b"%d" % i for i in range(4, 10)]


@needs(TRANSACTIONS)
def test_a_transaction_is_seen_as_a_whole_or_not_at_all(
    client: Client, broker: Broker, topic: str
) -> None:
    broker.demand_groups()
    broker.create(topic)
    name = f"x-{topic}"
    client.transact(topic, name, [Record(b"a"), Record(b"b")], commit=True)
    client.transact(topic, name, [Record(b"lost"), Record(b"too")], commit=False)
    client.transact(topic, name, [Record(b"c")], commit=True)
    found = client.consume_committed(topic, 0, 3)
    assert [each.value for each in found] == [b"a", b"b", b"c"]
    # Markers and what was aborted take offsets, too.
    assert [each.offset for each in found] == [0, 1, 6]
