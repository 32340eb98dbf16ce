"""The exposition of metrics, parsed by Prometheus' own parser."""

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ottla.observability.exposition import (
    PIECE_LINES,
    Column,
    Family,
    Kind,
    Registry,
    Sample,
    counter,
    gauge,
)
from ottla.observability.latency import BUCKETS, Latency, bucket_of, middle_of
from ottla.observability.loop_watch import LoopWatch
from ottla.observability.process_metrics import ProcessMetrics
from ottla.observability.quorum_meter import QuorumMeter
from ottla.observability.request_meter import REASONS_MAX, RequestMeter
from ottla.observability.topic_events import TopicMeter
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode


def read(*families: Iterable[Family]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Render and parse; return every sample by name and labels."""
    page = Registry([lambda each=each: each for each in families]).render().decode()  # type: ignore[misc]
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


@given(st.text(max_size=20))
def test_untrusted_label_is_escaped(text: str) -> None:
    found = read([gauge("a_gauge", text, 1, (("topic", text), ("other", "x")))])
    ((name, labels),) = found
    assert name == "a_gauge" and dict(labels).keys() == {"topic", "other"}
    if text.isprintable():
        assert dict(labels)["topic"] == text


@pytest.mark.parametrize("value", [0, 1, 2**63, 0.25, 1e300, math.inf, -math.inf])
def test_numbers_round_trip_through_the_parser(value: float) -> None:
    assert read([gauge("a_gauge", "", value)]) == {("a_gauge", ()): value}
    assert math.isnan(read([gauge("a_gauge", "", math.nan)])["a_gauge", ()])


def test_metric_name_has_one_source() -> None:
    twice = Registry([lambda: [counter("a_total", "", 1)], lambda: [counter("a_total", "", 2)]])
    with pytest.raises(AssertionError, match="a_total"):
        twice.render()


def test_family_without_samples_is_left_out() -> None:
    assert Registry([lambda: [Family("a_total", Kind.COUNTER, "", ())]]).render() == b""


def test_column_is_rendered_in_pieces_as_its_samples_are() -> None:
    values = [*range(2 * PIECE_LINES), 0.25, math.inf, math.nan, True]
    pairs = [(f'partition="{at}"', value) for at, value in enumerate(values)]

    def pieces(samples: Iterable[Sample]) -> list[bytes]:
        return list(Registry([lambda: [Family("a", Kind.GAUGE, "help", samples)]]).pieces())

    by_column = pieces(Column(iter(pairs)))
    assert len([piece for piece in by_column if piece]) == 3
    assert b"".join(by_column) == b"".join(pieces(Sample(*pair) for pair in pairs))
    assert list(Column(iter(pairs)))[:2] == [Sample(*pair) for pair in pairs[:2]]


# -- topics ----------------------------------------------------------------------


PREFIX = "kafka_server_brokertopicmetrics_"


def test_topics_are_counted_each_and_in_total() -> None:
    meter = TopicMeter()
    meter.produced("a", 3, 300)
    meter.produced("b", 1, 50)
    meter.produce_failed("b")
    meter.fetched("a", 70)
    meter.fetch_failed("a")
    meter.replicated_in("a", 5)
    meter.replicated_out("a", 6)
    found = read(meter.collect())

    def of(name: str, topic: str | None) -> float:
        labels = () if topic is None else (("topic", topic),)
        return found[f"{PREFIX}{name}_total", labels]

    assert [of("messagesin", t) for t in (None, "a", "b")] == [4, 3, 1]
    assert [of("bytesin", t) for t in (None, "a", "b")] == [350, 300, 50]
    assert [of("totalproducerequests", t) for t in (None, "a", "b")] == [3, 1, 2]
    assert [of("failedproducerequests", t) for t in (None, "a", "b")] == [1, 0, 1]
    assert [of("bytesout", t) for t in (None, "a")] == [70, 70]
    assert [of("totalfetchrequests", t) for t in (None, "a")] == [2, 2]
    assert [of("failedfetchrequests", t) for t in (None, "a")] == [1, 1]
    assert [of("replicationbytesin", None), of("replicationbytesout", None)] == [5, 6]


def test_unknown_topic_names_do_not_accumulate() -> None:
    meter = TopicMeter()
    for number in range(100):
        meter.produce_failed(f"none-{number}")
        meter.fetch_failed(f"none-{number}")
    found = read(meter.collect())
    assert found[f"{PREFIX}failedproducerequests_total", ()] == 100
    assert found[f"{PREFIX}failedfetchrequests_total", ()] == 100
    assert not any(labels for _, labels in found)


def test_deleted_topic_stays_in_the_total() -> None:
    meter = TopicMeter()
    meter.produced("kept", 1, 10)
    meter.produced("gone", 1, 20)
    meter.keep_only(["kept"])
    found = read(meter.collect())
    assert found[f"{PREFIX}bytesin_total", ()] == 30
    assert (f"{PREFIX}bytesin_total", (("topic", "gone"),)) not in found
    assert found[f"{PREFIX}bytesin_total", (("topic", "kept"),)] == 10


# -- requests --------------------------------------------------------------------


def test_connections_are_counted_while_open() -> None:
    meter = RequestMeter()
    for _ in range(3):
        meter.connection_opened("CLIENT")
    meter.connection_closed("CLIENT", "write failed: [Errno 32] Broken pipe")
    meter.connection_refused("CLIENT", "max.connections")
    meter.bad_bytes("CLIENT")
    found = read(meter.collect())
    server = "kafka_server_socket_server_metrics_connection_"
    here = ("listener", "CLIENT")
    assert found[f"{server}count", (here, ("networkProcessor", "0"))] == 2
    assert found[f"{server}creation_total", (here,)] == 3
    assert found[f"{server}close_total", (here, ("reason", "write failed"))] == 1
    refused = "ottla_server_connections_refused_total"
    assert found[refused, (here, ("reason", "max.connections"))] == 1
    assert found["ottla_server_bad_bytes_total", (here,)] == 1


def test_close_reasons_are_limited() -> None:
    meter = RequestMeter()
    for number in range(REASONS_MAX + 100):
        meter.connection_opened("CLIENT")
        meter.connection_closed("CLIENT", f"reason {number}")
    found = read(meter.collect())
    closed = {k: v for k, v in found.items() if "close_total" in k[0]}
    assert len(closed) == REASONS_MAX + 1 and sum(closed.values()) == REASONS_MAX + 100


def test_requests_are_counted_with_errors_and_time() -> None:
    meter = RequestMeter()
    for _ in range(98):
        meter.requested("CLIENT", ApiKey.FETCH)
        meter.answered("CLIENT", ApiKey.FETCH, 900)
    for _ in range(2):
        meter.answered("CLIENT", ApiKey.FETCH, 100_000)
    meter.request_failed("CLIENT", ApiKey.FETCH, ErrorCode.REQUEST_TIMED_OUT)
    found = read(meter.collect())
    name = "kafka_network_requestmetrics_"
    fetch = ("request", "Fetch")
    assert found[f"{name}requests_total", (fetch,)] == 98
    assert found[f"{name}errors_total", (("error", "REQUEST_TIMED_OUT"), fetch)] == 1
    assert found[f"{name}totaltimems", (("quantile", "0.5"), fetch)] == pytest.approx(0.9, rel=0.05)
    slow = found[f"{name}totaltimems", (("quantile", "0.99"), fetch)]
    assert slow == pytest.approx(100, rel=0.05)
    assert found[f"{name}totaltimems_count", (fetch,)] == 100
    assert found[f"{name}totaltimems_sum", (fetch,)] == pytest.approx(98 * 0.9 + 200)


@given(
    st.lists(st.integers(-5, 2**26), min_size=1, max_size=50),
    st.sampled_from([(0.5,), (0.1, 0.5, 0.99), (1.0,)]),
)
def test_quantiles_are_within_five_percent(times: list[int], fractions: tuple[float, ...]) -> None:
    latency = Latency()
    for each in times:
        latency.add(each)
    exact = sorted(max(0, each) for each in times)
    for fraction, found in zip(fractions, latency.quantiles(fractions), strict=True):
        rank = max(0, math.ceil(fraction * len(times)) - 1)
        assert found == pytest.approx(exact[rank], rel=0.05)


def test_quantiles_are_over_two_windows_and_counts_over_the_whole_life() -> None:
    latency = Latency()
    latency.add(1_000_000)
    latency.slide()
    latency.add(10)
    assert latency.quantiles((0.5, 1.0)) == [10, pytest.approx(1_000_000, rel=0.05)]
    latency.slide()
    assert latency.quantiles((0.5, 1.0)) == [10, 10]
    latency.slide()
    assert all(math.isnan(each) for each in latency.quantiles((0.5, 1.0)))
    assert (latency.count, latency.total) == (2, 1_000_010)


def test_buckets_ascend_and_the_last_one_is_open() -> None:
    middles = [middle_of(bucket) for bucket in range(BUCKETS)]
    assert middles == sorted(set(middles))
    assert bucket_of(2**60) == BUCKETS - 1
    assert middles[-1] > 120 * 10**6


# -- the quorum ------------------------------------------------------------------


def test_commit_latency_is_from_append_to_commit_on_the_leader() -> None:
    meter = QuorumMeter()
    meter.applied(9, 0)
    meter.appended(12, 3, 100)
    meter.appended(13, 1, 110)
    meter.applied(12, 130)
    meter.applied(13, 150)
    found = read(meter.collect())
    name = "kafka_server_raftmetrics_"
    assert found[f"{name}commit_latency_avg", ()] == 35
    assert found[f"{name}commit_latency_max", ()] == 40
    assert found[f"{name}append_records_rate", ()] == pytest.approx(4 / 30)
    assert found[f"{name}fetch_records_rate", ()] == 0


def test_follower_counts_what_it_reads_and_has_no_commit_latency() -> None:
    meter = QuorumMeter()
    meter.applied(9, 0)
    meter.appended(12, 3, 100)
    meter.lost_leadership()
    meter.applied(39, 200)
    found = read(meter.collect())
    assert found["kafka_server_raftmetrics_fetch_records_rate", ()] == 1
    assert math.isnan(found["kafka_server_raftmetrics_commit_latency_avg", ()])


# -- process and loop ------------------------------------------------------------


def test_process_metrics_have_the_usual_names() -> None:
    found = {name for name, _ in read(ProcessMetrics().collect())}
    assert found >= {
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_max_fds",
        "process_start_time_seconds",
        "process_threads",
    }
    values = read(ProcessMetrics().collect())
    assert values["process_resident_memory_bytes", ()] > 1 << 20
    assert values["process_start_time_seconds", ()] > 1e9


def test_process_metrics_without_proc_omit_those_of_the_kernel(tmp_path: object) -> None:
    found = {name for name, _ in read(ProcessMetrics(f"{tmp_path}/none").collect())}
    assert "process_cpu_seconds_total" in found and "process_open_fds" not in found


def test_stall_is_counted_and_the_maximum_lag_is_kept() -> None:
    watch = LoopWatch()
    for late in (0.2, 1.5, -0.1):
        watch.note(late)
    found = read(watch.collect())
    assert found["ottla_event_loop_lag_seconds", ()] == 0
    assert found["ottla_event_loop_lag_max_seconds", ()] == 1.5
    assert found["ottla_event_loop_stalls_total", ()] == 1


def test_idle_ratio_covers_the_current_and_the_last_window() -> None:
    watch = LoopWatch()
    assert watch.idle == 1.0
    watch.note_busy(15.0, 30.0)
    assert watch.idle == 0.5
    watch.end_window()
    watch.note_busy(0.1, 0.1)  # one busy tick does not look like a busy minute
    assert watch.idle == pytest.approx(1 - 15.1 / 30.1)
    watch.end_window()
    watch.end_window()
    assert watch.idle == 1.0
