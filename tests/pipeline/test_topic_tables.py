"""Tables that topics declare: their jobs, and which of them run next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ottla.config.key_definition import Scope
from ottla.config.key_table import KEYS as CONFIG_KEYS
from ottla.tables import schedule
from ottla.tables.job import BadJob, TableFormat, TableMode
from ottla.tables.schedule import TableState, choose, finished, measured, merged, started
from ottla.tables.topic_tables import KEYS, Place, job_of, jobs_of, key_expressions

PLACE = Place("/lake", "b:9092", {"kafka.x": "y"})


def defaults(**changed: str) -> dict[str, str]:
    """Return the settings of a topic as DescribeConfigs answers them."""
    keys = CONFIG_KEYS[Scope.TOPIC]
    found = {}
    for name in KEYS:
        default = keys[name].default
        found[name] = ",".join(default) if isinstance(default, tuple) else str(default)
    return found | {f"ottla.table.{key.replace('_', '.')}": text for key, text in changed.items()}


def test_every_setting_is_a_topic_key():
    declared = {name for name in CONFIG_KEYS[Scope.TOPIC] if name.startswith("ottla.table.")}
    assert declared == set(KEYS)


def test_topics_without_a_format_have_no_table():
    assert jobs_of({"plain": defaults(), "kafka": {}}, PLACE).jobs == {}


def test_defaults_make_a_table_of_raw_values():
    job = job_of("my.orders-1", defaults(format="delta"), PLACE)
    assert job.table.format is TableFormat.DELTA
    assert job.table.path == "/lake/my_orders_1"
    assert job.checkpoint_path == "/lake/_checkpoints/my_orders_1"
    assert job.bootstrap == "b:9092"
    assert job.source_options["kafka.x"] == "y"
    assert job.maintenance is not None
    assert job.maintenance.every == "3600000 ms"


def test_settings_become_the_job():
    settings = defaults(
        format="iceberg",
        mode="upsert",
        value_format="json",
        value_schema="id bigint, day date",
        key_schema="id bigint",
        partition_by="day",
        dead_letters="dead",
        misfits="dead-letters",
        name="shop",
    )
    job = job_of("orders", settings, PLACE)
    assert job.mode is TableMode.UPSERT
    assert (job.table.name, job.table.warehouse) == ("lake.topics.shop", "/lake")
    assert job.table.partition_by == ("day",)
    assert job.key_expressions == {"id": "try_cast(cast(key as string) as bigint)"}
    assert job.dead_letters == "dead"


def test_a_topic_with_contradictory_settings_does_not_affect_the_others():
    found = jobs_of(
        {
            "good": defaults(format="parquet"),
            "merged": defaults(format="parquet", mode="latest"),
            "unnamed": defaults(format="delta", mode="upsert"),
            "schemaless": defaults(format="delta", value_format="json"),
        },
        PLACE,
    )
    assert found.jobs.keys() == {"good"}
    assert "parquet files cannot be replaced" in found.errors["merged"]
    assert "needs key" in found.errors["unnamed"]
    assert "needs value.schema" in found.errors["schemaless"]


def test_two_topics_do_not_write_the_same_table():
    found = jobs_of({"a.b": defaults(format="delta"), "a-b": defaults(format="parquet")}, PLACE)
    assert found.jobs.keys() == {"a-b"}
    assert "the table of topic a-b" in found.errors["a.b"]


def test_key_schema_of_several_columns_is_a_json_object():
    found = key_expressions("id bigint, price decimal(10,2)")
    assert found.keys() == {"id", "price"}
    assert found["id"] == ("from_json(cast(key as string), 'id bigint, price decimal(10,2)').id")
    assert key_expressions("name string") == {"name": "cast(key as string)"}
    with pytest.raises(BadJob, match="'id' is not a column"):
        key_expressions("id")


# -- which table runs ------------------------------------------------------------


def table(topic: str, **known: object) -> TableState:
    return structs.replace(TableState(topic), **known)


def topics(starts: list[schedule.Start]) -> list[str]:
    return [each.topic for each in starts]


def test_tables_with_records_run_and_others_rest():
    states = [table("a", lag=0), table("b", lag=5), table("c")]
    assert set(topics(choose(states, 4, 1000))) == {"b", "c"}


def test_running_tables_take_slots():
    states = [table("a", lag=9, is_running=True), table("b", lag=5), table("c", lag=4)]
    assert topics(choose(states, 2, 1000)) == ["b"]
    assert choose(states, 1, 1000) == []


def test_the_larger_share_of_records_runs_first_unless_another_waits_longer():
    states = [table("big", lag=9000, ended=99_000), table("small", lag=10, ended=99_000)]
    assert topics(choose(states, 1, 100_000)) == ["big"]
    states = [table("big", lag=9000, ended=100_000), table("small", lag=10, ended=85_000)]
    assert topics(choose(states, 1, 100_000)) == ["small"]


def test_failing_table_waits_longer_each_time_and_success_resets_it():
    state, now = table("a", lag=5), 0
    waits = []
    for _ in range(8):
        state = finished(started(state, now), "broken", now)
        waits.append(state.retry_at() - now)
        assert choose([state], 1, state.retry_at() - 1) == []
        assert topics(choose([state], 1, state.retry_at())) == ["a"]
        now = state.retry_at()
    assert waits[:3] == [5000, 10_000, 20_000]
    assert waits[-1] == schedule.RETRY_MS_MAX
    assert finished(state, "", now).retry_at() == now


def test_turns_are_proportional_to_rates_within_bounds():
    assert schedule.turn_ms(10, 20, 2) == schedule.TURN_MS
    assert schedule.turn_ms(15, 20, 2) == int(schedule.TURN_MS * 1.5)
    assert schedule.turn_ms(0, 20, 2) == schedule.TURN_MS_MIN
    assert schedule.turn_ms(1000, 1000, 100) == schedule.TURN_MS_MAX
    assert schedule.turn_ms(0, 0, 3) == schedule.TURN_MS


def test_turn_ends_only_while_others_wait():
    running = started(table("a", lag=5), 0)
    assert not schedule.is_turn_over(running, 100, True, 99)
    assert schedule.is_turn_over(running, 100, True, 100)
    assert not schedule.is_turn_over(running, 100, False, 10_000)


def test_rate_is_what_producers_add():
    state = measured(TableState("a"), 100, 100, 1000)
    assert state.rate == 0
    state = measured(state, 300, 300, 3000)
    assert state.rate == 100
    assert measured(state, 300, 300, 4000).rate == pytest.approx(70)


def test_new_topics_appear_and_deleted_ones_leave_after_their_run():
    states = {"old": table("old"), "busy": table("busy", is_running=True)}
    assert merged(states, ["new"]).keys() == {"busy", "new"}


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=8), st.integers(1, 4))
def test_no_table_starves(lags: list[int], slots: int):
    """Every table with records runs within a bounded number of rounds."""
    states = {f"t{n}": table(f"t{n}", lag=lag) for n, lag in enumerate(lags)}
    ran: set[str] = set()
    for step in range(20 * len(lags)):
        now = step * 1000
        for start in choose(states.values(), slots, now):
            ran.add(start.topic)
            states[start.topic] = finished(started(states[start.topic], now), "", now)
    assert ran == {name for name, each in states.items() if each.lag}
