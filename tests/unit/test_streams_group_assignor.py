"""The streams assignor: even, sticky, and no task twice in one process."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinators.groups.streams.assignor import (
    StreamsMemberSpec,
    StreamsSpec,
    assign_sticky,
)
from ottla.coordinators.groups.streams.tasks import TaskRoles

Targets = dict[str, TaskRoles]


def spec(
    processes: dict[str, str],
    counts: dict[str, int],
    *,
    stateful: str = "",
    standby: int = 0,
    before: Targets | None = None,
) -> StreamsSpec:
    members = {
        each: StreamsMemberSpec(process, (before or {}).get(each, TaskRoles()))
        for each, process in processes.items()
    }
    return StreamsSpec(members, counts, frozenset(stateful), standby)


def tasks(name: str, *numbers: int) -> frozenset[tuple[str, int]]:
    return frozenset((name, number) for number in numbers)


ALONE = {"a": "1", "b": "2", "c": "3"}


def test_tasks_are_spread_over_members() -> None:
    targets = assign_sticky(spec(ALONE, {"0": 5, "1": 4}))
    assert sorted(len(each.active) for each in targets.values()) == [3, 3, 3]


def test_streams_group_without_members_gets_no_targets() -> None:
    assert assign_sticky(spec({}, {"0": 5})) == {}


def test_remaining_member_keeps_tasks_within_its_share() -> None:
    before = assign_sticky(spec({"a": "1", "b": "2"}, {"0": 6}))
    after = assign_sticky(spec(ALONE, {"0": 6}, before=before))
    for each in ("a", "b"):
        assert after[each].active < before[each].active
        assert len(after[each].active) == 2
    assert len(after["c"].active) == 2


def test_tasks_of_a_leaving_member_move_and_others_stay() -> None:
    before = assign_sticky(spec(ALONE, {"0": 6}))
    after = assign_sticky(spec({"a": "1", "b": "2"}, {"0": 6}, before=before))
    for each in ("a", "b"):
        assert after[each].active > before[each].active


def test_a_standby_becomes_active_where_the_active_one_is_gone() -> None:
    before = assign_sticky(spec(ALONE, {"0": 6}, stateful="0", standby=1))
    pair = {"a": "1", "b": "2"}
    after = assign_sticky(spec(pair, {"0": 6}, stateful="0", standby=1, before=before))
    lost = before["c"].active
    for each in ("a", "b"):
        assert before[each].active <= after[each].active
        assert after[each].active & lost <= before[each].standby


def test_standbys_are_only_of_stateful_tasks_and_only_as_many_as_processes() -> None:
    targets = assign_sticky(spec(ALONE, {"0": 2, "1": 2}, stateful="1", standby=5))
    copies = Counter(task for each in targets.values() for task in each.standby)
    assert copies == {("1", 0): 2, ("1", 1): 2}


def test_threads_of_one_process_do_not_back_each_other_up() -> None:
    one = assign_sticky(spec({"a": "1", "b": "1"}, {"0": 4}, stateful="0", standby=1))
    assert not any(each.standby for each in one.values())


def test_former_owner_of_a_moved_task_becomes_its_standby() -> None:
    before = {"a": TaskRoles(tasks("0", 0, 1, 2, 3))}
    after = assign_sticky(
        spec({"a": "1", "b": "2"}, {"0": 4}, stateful="0", standby=1, before=before)
    )
    assert after["a"].active | after["a"].standby == tasks("0", 0, 1, 2, 3)
    assert after["b"].active == after["a"].standby


def test_more_threads_run_more() -> None:
    targets = assign_sticky(spec({"a1": "a", "a2": "a", "a3": "a", "b1": "b"}, {"0": 8}))
    assert sorted(len(each.active) for each in targets.values()) == [2, 2, 2, 2]


@settings(max_examples=120, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("123"), max_size=6),
        min_size=1,
        max_size=4,
    ),
    st.dictionaries(st.sampled_from("01"), st.integers(0, 7), min_size=1),
    st.integers(0, 2),
)
def test_over_any_history_targets_are_whole_even_and_sticky(
    simulations: list[dict[str, str]], counts: dict[str, int], standby: int
) -> None:
    before: Targets = {}
    for processes in simulations:
        asked = spec(processes, counts, stateful="0", standby=standby, before=before)
        targets = assign_sticky(asked)
        assert set(targets) == set(processes)
        if processes:
            _check_active(targets, counts)
            _check_standby(targets, processes, counts, standby)
            again = spec(processes, counts, stateful="0", standby=standby, before=targets)
            assert _active(assign_sticky(again)) == _active(targets), "nothing moves for nothing"
        before = targets


def _active(targets: Targets) -> dict[str, frozenset[tuple[str, int]]]:
    return {each: target.active for each, target in targets.items()}


def _check_active(targets: Targets, counts: dict[str, int]) -> None:
    found = Counter(task for each in targets.values() for task in each.active)
    assert found == {(name, part): 1 for name in counts for part in range(counts[name])}
    sizes = [len(each.active) for each in targets.values()]
    assert max(sizes) - min(sizes) <= 1


def _check_standby(
    targets: Targets, processes: dict[str, str], counts: dict[str, int], standby: int
) -> None:
    seen: Counter[tuple[str, tuple[str, int]]] = Counter()
    for member_id, target in targets.items():
        for task in (*target.active, *target.standby):
            seen[processes[member_id], task] += 1
    assert not seen or max(seen.values()) == 1, "a process has a task once"
    copies = min(standby, len(set(processes.values())) - 1)
    found = Counter(task for each in targets.values() for task in each.standby)
    wanted = {("0", part): copies for part in range(counts.get("0", 0)) if copies}
    assert found == wanted
