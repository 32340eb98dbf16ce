"""When the nodes of a machine are started, restarted and stopped."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.host.supervision import (
    BACK_OFF_S_MAX,
    ROLL_S_MAX,
    STABLE_S,
    STOP_S_MAX,
    Effect,
    Finish,
    Kill,
    Report,
    Start,
    State,
    Supervision,
    Terminate,
)

IDS = (1, 2, 3)


def acts(effects: list[Effect]) -> list[Effect]:
    """Return the effects without reports."""
    return [each for each in effects if not isinstance(each, Report)]


def reports(effects: list[Effect]) -> str:
    return "\n".join(each.text for each in effects if isinstance(each, Report))


def running(ids: tuple[int, ...] = IDS, now: float = 0.0) -> Supervision:
    """Return nodes that are all ready and settled."""
    rules = Supervision(ids)
    assert acts(rules.begin(now)) == [Start(each) for each in ids]
    for each in ids:
        rules.on_ready(each, now)
        rules.on_settled(each, True, now)
    return rules


def back(rules: Supervision, node_id: int, now: float) -> list[Effect]:
    """A node comes back and catches up."""
    return rules.on_ready(node_id, now) + rules.on_settled(node_id, True, now)


def test_node_that_exits_is_started_again_after_a_growing_back_off() -> None:
    rules = running()
    now, waits = 10.0, []
    for _ in range(9):
        found = rules.on_exit(2, -9, now)
        assert acts(found) == []
        assert "node 2 was ended by signal 9; starting it again in" in reports(found)
        due = rules.next_due()
        assert due is not None
        assert acts(rules.on_time(due - 0.01)) == []
        assert acts(rules.on_time(due)) == [Start(2)]
        waits.append(due - now)
        now = due + 1
        rules.on_ready(2, now)
    assert waits[:4] == [0.5, 1, 2, 4]
    assert waits[-1] == BACK_OFF_S_MAX
    assert acts(rules.on_exit(2, 1, now + STABLE_S)) == []
    assert rules.next_due() == now + STABLE_S + 0.5, "it had run for a minute"


def test_node_that_never_was_ready_stops_the_others_and_exits_with_1() -> None:
    rules = Supervision(IDS)
    rules.begin(0.0)
    rules.on_ready(1, 1.0)
    found = rules.on_exit(2, 1, 2.0)
    assert acts(found) == [Terminate(3), Terminate(1)]
    assert "node 2 exited with code 1 before it was ready" in reports(found)
    assert acts(rules.on_exit(3, 0, 3.0)) == []
    assert acts(rules.on_exit(1, 0, 4.0)) == [Finish(1)]


def test_stop_stops_one_node_after_the_other_the_first_one_last() -> None:
    rules = running()
    assert acts(rules.on_stop(1.0)) == [Terminate(3)]
    assert acts(rules.on_exit(3, 0, 2.0)) == [Terminate(2)]
    assert acts(rules.on_exit(2, 0, 3.0)) == [Terminate(1)]
    assert acts(rules.on_exit(1, 0, 4.0)) == [Finish(0)]


def test_second_stop_stops_all_at_once_and_a_third_kills() -> None:
    rules = running()
    rules.on_stop(1.0)
    assert acts(rules.on_stop(2.0)) == [Terminate(2), Terminate(1)]
    assert acts(rules.on_stop(3.0)) == [Kill(3), Kill(2), Kill(1)]
    found = [rules.on_exit(each, -9, 4.0) for each in (2, 1, 3)]
    assert acts(found[-1]) == [Finish(1)]


def test_node_that_does_not_stop_is_killed_and_the_exit_code_says_so() -> None:
    rules = running((1, 2))
    rules.on_stop(1.0)
    assert rules.next_due() == 1.0 + STOP_S_MAX
    assert acts(rules.on_time(1.0 + STOP_S_MAX)) == [Kill(2)]
    assert acts(rules.on_exit(2, -9, 92.0)) == [Terminate(1)]
    assert acts(rules.on_exit(1, 0, 93.0)) == [Finish(1)]


def test_stop_does_not_wait_for_a_node_in_back_off() -> None:
    rules = running((1, 2))
    rules.on_exit(2, -9, 1.0)
    assert acts(rules.on_stop(1.1)) == [Terminate(1)]
    assert acts(rules.on_time(100.0)) == [Kill(1)]
    assert acts(rules.on_exit(1, -9, 101.0)) == [Finish(1)]


def test_stop_of_nodes_that_are_all_in_back_off_ends_at_once() -> None:
    rules = running((1,))
    rules.on_exit(1, -9, 1.0)
    assert acts(rules.on_stop(1.1)) == [Finish(0)]


def test_rolling_restart_waits_until_each_node_is_in_sync() -> None:
    rules = running()
    assert acts(rules.on_roll(1.0)) == [Terminate(3)]
    assert acts(rules.on_exit(3, 0, 2.0)) == [Start(3)], "at once, without a back-off"
    assert acts(rules.on_ready(3, 3.0)) == [], "its replicas are not in sync yet"
    assert acts(rules.on_settled(3, True, 4.0)) == [Terminate(2)]
    rules.on_exit(2, 0, 5.0)
    assert acts(back(rules, 2, 6.0)) == [Terminate(1)]
    rules.on_exit(1, 0, 7.0)
    found = back(rules, 1, 8.0)
    assert acts(found) == []
    assert "rolling restart done" in reports(found)
    assert rules.next_due() is None


def test_rolling_restart_waits_for_every_other_node_too() -> None:
    rules = running()
    rules.on_settled(1, False, 1.0)
    assert acts(rules.on_roll(2.0)) == []
    assert acts(rules.on_settled(1, True, 3.0)) == [Terminate(3)]
    rules.on_exit(3, 0, 4.0)
    rules.on_exit(1, -9, 4.5)
    assert acts(back(rules, 3, 5.0)) == [], "node 1 has exited by itself"
    assert acts(rules.on_time(5.0)) == [Start(1)]
    assert acts(back(rules, 1, 6.0)) == [Terminate(2)]


def test_rolling_restart_is_given_up_if_a_node_does_not_start_or_catch_up() -> None:
    rules = running()
    rules.on_roll(1.0)
    rules.on_exit(3, 0, 2.0)
    found = rules.on_exit(3, 1, 3.0)
    assert "given up: node 3 did not start; not restarted: 2, 1" in reports(found)
    assert acts(rules.on_time(4.0)) == [Start(3)]
    assert acts(back(rules, 3, 5.0)) == []
    rules.on_roll(10.0)
    rules.on_exit(3, 0, 11.0)
    rules.on_ready(3, 12.0)
    found = rules.on_time(10.0 + ROLL_S_MAX)
    assert "given up: replicas of node 3 are not in sync" in reports(found)


def test_second_rolling_restart_is_refused_and_none_begins_during_a_stop() -> None:
    rules = running()
    rules.on_roll(1.0)
    assert "in progress already" in reports(rules.on_roll(1.5))
    assert acts(rules.on_stop(2.0)) == [], "node 3 is stopping already"
    assert rules.on_roll(3.0) == []
    assert acts(rules.on_exit(3, 0, 4.0)) == [Terminate(2)]


class Processes:
    """What the effects do: which nodes have a process, and which of these have been signalled."""

    def __init__(self) -> None:
        self.alive: set[int] = set()
        self.codes: list[int] = []

    def do(self, effects: list[Effect]) -> None:
        for each in effects:
            match each:
                case Start(node_id):
                    assert node_id not in self.alive, "started twice"
                    assert not self.codes
                    self.alive.add(node_id)
                case Terminate(node_id) | Kill(node_id):
                    assert node_id in self.alive, "signal to a node without a process"
                case Finish(code):
                    assert not self.alive
                    self.codes.append(code)
                case Report():
                    pass


EVENTS = st.tuples(
    st.sampled_from(["ready", "settled", "unsettled", "exit", "stop", "roll", "time"]),
    st.sampled_from(IDS),
    st.sampled_from([0.0, 0.3, 5.0, 100.0, 700.0]),
)


@given(st.lists(EVENTS, max_size=60))
def test_no_order_of_events_breaks_the_rules(events: list[tuple[str, int, float]]) -> None:
    """No node runs twice, a rolling restart stops one at a time, and a stop comes to an end."""
    rules, processes, now = Supervision(IDS), Processes(), 0.0
    processes.do(rules.begin(now))
    stops = 0
    for name, node_id, later in events:
        now += later
        is_alive = node_id in processes.alive
        match name:
            case "ready" if is_alive:
                processes.do(rules.on_ready(node_id, now))
            case "settled" | "unsettled" if is_alive:
                processes.do(rules.on_settled(node_id, name == "settled", now))
            case "exit" if is_alive:
                processes.alive.remove(node_id)
                processes.do(rules.on_exit(node_id, 1, now))
            case "stop" if not processes.codes:
                stops += 1
                processes.do(rules.on_stop(now))
            case "roll" if not processes.codes:
                processes.do(rules.on_roll(now))
            case "time" if not processes.codes:
                processes.do(rules.on_time(now))
        stopping = [each for each in IDS if rules.state(each) is State.STOPPING]
        assert stops or len(stopping) <= 1 or len(processes.alive) < len(IDS)
    if not processes.codes:
        processes.do(rules.on_stop(now))
    for _ in IDS:
        for node_id in sorted(processes.alive):
            if not processes.codes and rules.state(node_id) is State.STOPPING:
                processes.alive.remove(node_id)
                processes.do(rules.on_exit(node_id, 0, now))
    assert len(processes.codes) == 1
