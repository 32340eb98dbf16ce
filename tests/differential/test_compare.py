"""Normalised outcomes are equal only if every field is, and the list allows only what it says."""

import dataclasses
import uuid
from pathlib import Path

import pytest
from tests.differential import page, wire
from tests.differential.catalogue import Ranges, families
from tests.differential.compare import Difference, compare, led_by
from tests.differential.deliberate import Deliberate, load, matches
from tests.differential.mutations import Plan, changes
from tests.differential.normalise import IGNORED, Normaliser
from tests.differential.runner import Result
from tests.differential.script import CLOSED, Step
from tests.differential.test_wire import EVERY, sample


def normalised(api: str, version: int, *replies: object, words: dict | None = None) -> list[object]:
    normaliser = Normaliser(words or {}, {9092: "<port>"})
    return [normaliser.outcome(Step(api, api, version, reply)) for reply in replies]


def difference(api: str, version: int, kafka: object, ottla: object) -> list[Difference]:
    theirs, ours = normalised(api, version, kafka)[0], normalised(api, version, ottla)[0]
    return compare(theirs, ours).differences


def leaves(values: object, path: tuple = ()) -> list[tuple]:
    if isinstance(values, dict):
        return [leaf for name in values for leaf in leaves(values[name], (*path, name))]
    if isinstance(values, list):
        return [leaf for index, item in enumerate(values) for leaf in leaves(item, (*path, index))]
    return [path]


def changed(values: object, path: tuple) -> object:
    if not path:
        is_known = {bool: lambda v: not v, str: lambda v: v + "x", bytes: lambda v: v + b"x"}
        other = {uuid.UUID: lambda v: wire.ZERO_UUID}
        return (is_known | other).get(type(values), lambda v: -7)(values)
    copy = list(values) if isinstance(values, list) else dict(values)
    copy[path[0]] = changed(copy[path[0]], path[1:])
    return copy


def test_every_field_of_every_reply_that_differs_is_found() -> None:
    """Each field in turn is changed; only those that are declared as ignored may pass."""
    passed, found = set(), 0
    for api, version in EVERY:
        values = sample(wire.response_shape(api, version))
        for path in leaves(values):
            if difference(api, version, values, changed(values, path)):
                found += 1
            else:
                passed.add((api, path[-1]))
    # Ids and messages pass where one is swapped for another: checked on their own below.
    swapped = {name for _, name in passed if ("*", name) not in IGNORED}
    swapped -= {name for _, name in IGNORED}
    assert swapped <= {
        "error_message",
        "acknowledge_error_message",
        "batch_index_error_message",
        "status_detail",
        "member_id",
        "leader",
        "token_id",
        "subscription_id",
    }
    assert found > 1500


def test_equal_replies_are_equal_and_the_fields_are_counted() -> None:
    values = sample(wire.response_shape("metadata", 13))
    theirs, ours = normalised("metadata", 13, values)[0], normalised("metadata", 13, values)[0]
    result = compare(theirs, ours)
    assert result.differences == []
    assert result.compared >= len(leaves(values)) - 1


def test_a_message_that_is_null_on_one_side_differs() -> None:
    values = sample(wire.response_shape("create_topics", 7))
    other = dict(values)
    other["topics"] = [{**values["topics"][0], "error_message": None}]
    (found,) = difference("create_topics", 7, values, other)
    assert found.path.endswith("error_message")


def test_ids_are_equal_only_in_the_same_places() -> None:
    def reply(*ids: int) -> dict[str, object]:
        rows = [{"name": str(n), "topic_id": uuid.UUID(int=i << 64)} for n, i in enumerate(ids)]
        return {"topics": rows}

    assert difference("metadata", 12, reply(1, 2), reply(8, 9)) == []
    assert difference("metadata", 12, reply(1, 2), reply(8, 8)) != []
    zero = {"topics": [{"name": "0", "topic_id": wire.ZERO_UUID}]}
    assert difference("metadata", 12, reply(1), zero) != []


def test_an_id_keeps_its_name_over_the_steps_of_a_case() -> None:
    first = {"producer_id": 1000, "producer_epoch": 0}
    second = {"producer_id": 1001, "producer_epoch": 0}
    theirs = normalised("init_producer_id", 4, first, first)
    ours = normalised("init_producer_id", 4, first, second)
    assert compare(theirs[0], ours[0]).differences == []
    assert [found.path for found in compare(theirs[1], ours[1]).differences] == ["producer_id"]


def test_unordered_lists_are_compared_by_name() -> None:
    def reply(*names: str) -> dict[str, object]:
        return {"groups": [{"group_id": name, "protocol_type": name} for name in names]}

    assert difference("list_groups", 3, reply("a", "b"), reply("b", "a")) == []
    (found,) = difference("list_groups", 3, reply("a", "b"), reply("a"))
    assert (found.path, found.ottla) == ("groups[b]", "absent")
    assert difference("list_groups", 3, reply("a"), reply("a", "a")) != []


def test_ordered_lists_of_another_length_or_order_differ() -> None:
    def reply(*ports: int) -> dict[str, object]:
        return {"brokers": [{"node_id": port, "port": port} for port in ports]}

    assert difference("metadata", 1, reply(1, 2), reply(2, 1)) != []
    assert difference("metadata", 1, reply(1, 2), reply(1)) != []


def test_a_closed_connection_is_an_outcome() -> None:
    assert difference("metadata", 1, CLOSED, CLOSED) == []
    (found,) = difference("metadata", 1, CLOSED, {"brokers": []})
    assert found.path == ""


def test_true_and_one_differ() -> None:
    assert compare({"a": True}, {"a": 1}).differences != []


def row(**changes: object) -> Deliberate:
    texts = dict.fromkeys(("request", "situation", "kafka", "ottla", "reason"), "x")
    values = {**texts, "cases": ("fetch/*/v1*",), "paths": ("topics[*].error_code",)}
    return Deliberate(**{**values, **changes})


def test_a_row_allows_only_its_cases_and_paths() -> None:
    found = Difference("topics[a].error_code", "1", "2")
    assert row().covers("fetch/fetch/good/v12", found)
    assert not row().covers("fetch/fetch/good/v2", found)
    assert not row().covers("produce/x/v12", found)
    assert not row().covers("fetch/x/v12", dataclasses.replace(found, path="topics[a].name"))


def test_patterns_know_only_star_and_not() -> None:
    assert matches("a[0]*", "a[0].b")
    assert not matches("a[0]", "a0")
    assert not matches("a.b", "axb")
    assert matches("!0", "42")
    assert not matches("!0", "0")


def test_a_row_may_depend_on_the_values() -> None:
    found = Difference("topics[a].error_code", "-1", "0")
    assert not row(kafka_value="-1", ottla_value="!0").covers("fetch/x/v1", found)
    other = dataclasses.replace(found, ottla="42")
    assert row(kafka_value="-1", ottla_value="!0").covers("fetch/x/v1", other)


def test_a_differing_error_code_explains_what_is_beside_and_below_it() -> None:
    code = Difference("a[0].error_code", "0", "3")
    below = Difference("a[0].parts[1].offset", "5", "-1")
    elsewhere = Difference("a[1].name", "x", "y")
    assert led_by([below, code, elsewhere]) == {below: code, code: code, elsewhere: elsewhere}


def test_a_row_without_use_is_reported_once_its_families_were_played() -> None:
    result = Result()
    assert result.stale([row()], {"fetch"}) == [row()]
    assert result.stale([row()], {"produce"}) == []
    result.allowed[row()] = 1
    assert result.stale([row()], {"fetch"}) == []


def test_a_row_with_an_empty_or_unknown_field_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "rows.toml"
    path.write_text('[[difference]]\nrequest = "x"\n')
    with pytest.raises(ValueError, match="wrong or empty"):
        load(path)


def test_changes_reach_every_field_of_a_request() -> None:
    template = lambda script: {"topics": [{"name": "a"}]}  # noqa: E731
    made = dict(changes(Plan("create_topics", template), 7))
    labels = set(made)
    assert {"topics=null", "topics twice", "topics[0].name=''", "timeout=max"} <= labels
    assert made["topics[0].name=null"]({"topics": [{"name": "a"}]}) == {"topics": [{"name": None}]}
    assert made["topics twice"]({"topics": [1]}) == {"topics": [1, 1]}


def test_every_family_has_cases_with_names_of_their_own() -> None:
    every = {api: range(wire.versions(api)[0], wire.versions(api)[-1] + 1) for api in wire.API_KEYS}
    total, apis = 0, set()
    for family in families():
        names = [case.name for case in family.cases(Ranges(every, every))]
        assert len(names) == len(set(names)), family.name
        assert all(name.startswith(f"{family.name}/") for name in names)
        total += len(names)
        apis |= {name.split("/")[1] for name in names}
    assert total > 5000


def test_the_page_of_differences_is_current() -> None:
    assert page.PAGE.read_text() == page.render(load())
