"""Configs of groups, within the bounds of the broker."""

import pytest
from consumer_harness import image_with
from controller_images import image_of
from msgspec.structs import replace
from partition_fixtures import HandClock

from ottla.config.generated import BrokerConfig
from ottla.coordinators.groups.consumer.context import ConsumerContext
from ottla.coordinators.groups.consumer.settings import ConsumerSettings
from ottla.coordinators.groups.group_configs import ANY, Bounds, number_of_group, of_group
from ottla.coordinators.groups.share.context import ShareContext
from ottla.coordinators.groups.share.settings import ShareSettings
from ottla.coordinators.groups.streams.context import StreamsContext
from ottla.coordinators.groups.streams.settings import StreamsSettings
from ottla.metadata.configs import ConfigResourceType
from ottla.metadata.image import Image
from ottla.node.broker.group_services import shard_settings, streams_settings
from ottla.protocol.internal.metadata_topics import ConfigRecord
from ottla.protocol.records.batch import Compression


def image_set(key: str, value: str) -> Image:
    return image_of(ConfigRecord(ConfigResourceType.GROUP, "g", key, value))


@pytest.mark.parametrize(
    ("value", "found"), [("500", 1000), ("1000", 1000), ("2500", 2500), ("9000", 4000), ("x", 7)]
)
def test_a_number_is_brought_within_bounds(value: str, found: int) -> None:
    image = image_set("k", value)
    assert number_of_group(image, "g", "k", 7, Bounds(1000, 4000)) == found
    assert number_of_group(image, "other", "k", 7, Bounds(1000, 4000)) == 7, "the broker's own"


def test_group_config_without_bounds_is_used_unchanged() -> None:
    assert number_of_group(image_set("k", "1"), "g", "k", 7, ANY) == 1
    assert of_group(image_set("k", "word"), "g", "k", "") == "word"
    assert of_group(image_with(), "g", "k", "none") == "none"


def test_all_kinds_of_groups_go_by_the_brokers_bounds() -> None:
    bounds = Bounds(40_000, 60_000)
    consumer = ConsumerSettings(session_bounds=bounds, heartbeat_bounds=Bounds(3000, 9000))
    few = ConsumerContext(consumer, lambda: image_set("consumer.session.timeout.ms", "10"))
    assert few.session_timeout_ms("g") == 40_000
    many = ConsumerContext(consumer, lambda: image_set("consumer.heartbeat.interval.ms", "99999"))
    assert many.heartbeat_interval_ms("g") == 9000
    settings = ShareSettings(session_bounds=bounds, heartbeat_bounds=Bounds(3000, 9000))
    share = ShareContext(settings, lambda: image_set("share.session.timeout.ms", "99999"))
    assert share.session_timeout_ms("g") == 60_000
    share = ShareContext(settings, lambda: image_set("share.heartbeat.interval.ms", "1"))
    assert share.heartbeat_interval_ms("g") == 3000
    streams = StreamsSettings(
        session_bounds=bounds, heartbeat_bounds=Bounds(3000, 9000), standby_bounds=Bounds(0, 2)
    )
    low = StreamsContext(streams, lambda: image_set("streams.session.timeout.ms", "1"))
    assert low.session_timeout_ms("g") == 40_000
    high = StreamsContext(streams, lambda: image_set("streams.heartbeat.interval.ms", "99999"))
    assert high.heartbeat_interval_ms("g") == 9000
    more = StreamsContext(streams, lambda: image_set("streams.num.standby.replicas", "5"))
    assert more.assignment_configs("g") == (("num.standby.replicas", "2"),)


def test_a_brokers_settings_bound_what_its_streams_groups_set() -> None:
    settings = streams_settings(broker_config())
    assert settings.session_bounds == Bounds(45_000, 60_000)
    assert settings.heartbeat_bounds == Bounds(5000, 15_000)
    assert settings.standby_bounds == Bounds(0, 2)


def test_a_brokers_settings_say_how_shards_write() -> None:
    config = replace(
        broker_config(), offsets_commit_timeout_ms=7, offsets_topic_compression_codec=4
    )
    settings = shard_settings(config, HandClock())
    assert (settings.linger_ms, settings.write_timeout_ms) == (-1, 7)
    assert settings.compression is Compression.ZSTD
    config = replace(config, group_coordinator_append_linger_ms=5)
    assert shard_settings(config, HandClock()).linger_ms == 5


def broker_config() -> BrokerConfig:
    return BrokerConfig(node_id=1, process_roles=("broker",), controller_listener_names=("CTL",))
