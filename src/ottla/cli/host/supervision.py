"""When the nodes of a machine are started, restarted and stopped. Pure: events in, effects out.

    starting --ready--> ready --stop or roll--> stopping --exit--> stopped, or starting again
        |                 |
        +-----exit--------+--> waiting --back-off over--> starting

- A node that exits is started again after a back-off that doubles, from half a second to half a
  minute; a node that has run for a minute begins anew. If a node of the first start exits before it
  is ready, its settings are wrong: the others are stopped and the supervisor exits with 1.
- A stop stops one node after the other, so that leaderships move to those that are left, the first
  node last: it may be the controller. A second request stops all at once, a third kills them.
- A rolling restart restarts one node after the other in the same order. Each step waits until all
  nodes are ready and settled, that is, their replicas are in sync (`ottla.node.broker.settled`).

Times are seconds of a monotonic clock.
"""

import enum
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

BACK_OFF_S: Final = 0.5
BACK_OFF_S_MAX: Final = 30.0
STABLE_S: Final = 60.0
"""A node that has run for this long before it exits begins with the shortest back-off."""
STOP_S_MAX: Final = 90.0
"""A node that has not stopped after this time is killed; a controlled shutdown may take 30 s."""
ROLL_S_MAX: Final = 600.0
"""A rolling restart that waits longer than this for a node is given up."""


class BackOff(msgspec.Struct):
    """How long to wait before one node is started again. ``exits`` counts exits in a row."""

    exits: int = 0

    def next_delay_s(self, ran_s: float) -> float:
        """Count an exit of a node that ran for ``ran_s``, and return how long to wait."""
        if ran_s >= STABLE_S:
            self.exits = 0
        delay_s = min(BACK_OFF_S * float(1 << min(self.exits, 16)), BACK_OFF_S_MAX)
        self.exits += 1
        return delay_s


class Start(msgspec.Struct, frozen=True):
    """Start the process of a node."""

    node_id: int


class Terminate(msgspec.Struct, frozen=True):
    """Send SIGTERM to a node."""

    node_id: int


class Kill(msgspec.Struct, frozen=True):
    """Send SIGKILL to a node."""

    node_id: int


class Report(msgspec.Struct, frozen=True):
    """Write a line to the log."""

    text: str
    is_error: bool = False


class Finish(msgspec.Struct, frozen=True):
    """All nodes have stopped: exit with this code."""

    code: int


Effect: TypeAlias = Start | Terminate | Kill | Report | Finish


class State(enum.Enum):
    """The state of one node."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    WAITING = "waiting"
    STOPPED = "stopped"


class _Node(msgspec.Struct):
    """One node. ``due`` is when a waiting node starts, or a stopping one is killed."""

    node_id: int
    state: State = State.STOPPED
    started_at: float = 0.0
    due: float = 0.0
    back_off: BackOff = msgspec.field(default_factory=BackOff)
    was_ready: bool = False
    is_settled: bool = False


class Supervision:
    """The nodes of one machine, the first one first. Every method returns what to do."""

    def __init__(self, node_ids: Sequence[int]) -> None:
        self._nodes = {node_id: _Node(node_id) for node_id in node_ids}
        self._stop_requests = 0
        self._exit_code = 0
        self._left_to_roll: list[int] = []
        self._rolling: int | None = None
        self._roll_due = 0.0

    def state(self, node_id: int) -> State:
        """Return the state of a node."""
        return self._nodes[node_id].state

    def are_all_ready(self) -> bool:
        """Return whether every node serves."""
        return all(node.state is State.READY for node in self._nodes.values())

    def next_due(self) -> float | None:
        """Return when `on_time` must be called, None if nothing is due."""
        found = [
            node.due
            for node in self._nodes.values()
            if node.state in (State.WAITING, State.STOPPING)
        ]
        if self._is_rolling():
            found.append(self._roll_due)
        return min(found, default=None)

    # -- events of nodes -------------------------------------------------------------------

    def begin(self, now: float) -> list[Effect]:
        """Start all nodes."""
        return [self._start(node, now) for node in self._nodes.values()]

    def on_ready(self, node_id: int, now: float) -> list[Effect]:
        """A node serves."""
        node = self._nodes[node_id]
        if node.state is not State.STARTING:
            return []
        node.state, node.was_ready = State.READY, True
        return self._advance_roll(now)

    def on_settled(self, node_id: int, is_settled: bool, now: float) -> list[Effect]:
        """The replicas of a node are in sync, or are not any more."""
        self._nodes[node_id].is_settled = is_settled
        return self._advance_roll(now)

    def on_exit(self, node_id: int, code: int, now: float) -> list[Effect]:
        """The process of a node has ended; a negative code is the number of a signal."""
        node = self._nodes[node_id]
        was, node.is_settled = node.state, False
        if self._stop_requests:
            node.state = State.STOPPED
            return self._stop_next(now)
        if was is State.STOPPING:  # the step of a rolling restart
            return [self._start(node, now)]
        text = f"node {node_id} {_ending(code)}"
        if not node.was_ready:
            self._exit_code = 1
            node.state = State.STOPPED
            reason = f"{text} before it was ready; stopping the others"
            return [Report(reason, True), *self._stop_all_at_once(now)]
        delay = node.back_off.next_delay_s(now - node.started_at)
        node.state, node.due = State.WAITING, now + delay
        effects: list[Effect] = [Report(f"{text}; starting it again in {delay:g} s", True)]
        if self._rolling == node_id:
            effects += self._give_up_roll(f"node {node_id} did not start")
        return effects

    # -- requests --------------------------------------------------------------------------

    def on_stop(self, now: float) -> list[Effect]:
        """Stop: one after the other at first, all at once the second time, then by force."""
        self._stop_requests += 1
        self._left_to_roll, self._rolling = [], None
        if self._stop_requests == 1:
            return [Report("stopping the nodes, one after the other"), *self._stop_next(now)]
        if self._stop_requests == 2:
            return [Report("stopping all nodes at once"), *self._stop_all_at_once(now)]
        self._exit_code = 1
        return [Kill(node.node_id) for node in self._running()]

    def on_roll(self, now: float) -> list[Effect]:
        """Restart the nodes, one after the other."""
        if self._stop_requests:
            return []
        if self._is_rolling():
            return [Report("a rolling restart is in progress already")]
        self._left_to_roll = list(self._nodes)
        self._roll_due = now + ROLL_S_MAX
        return [Report("rolling restart of all nodes"), *self._advance_roll(now)]

    def on_time(self, now: float) -> list[Effect]:
        """Do what is due."""
        effects: list[Effect] = []
        for node in self._nodes.values():
            if node.state is State.WAITING and now >= node.due:
                effects.append(self._start(node, now))
            elif node.state is State.STOPPING and now >= node.due:
                self._exit_code = 1
                node.due = now + STOP_S_MAX
                text = f"node {node.node_id} did not stop within {STOP_S_MAX:g} s; killed"
                effects += [Report(text, True), Kill(node.node_id)]
        if self._is_rolling() and now >= self._roll_due:
            late = [node.node_id for node in self._nodes.values() if not _is_whole(node)]
            names = ", ".join(map(str, late)) or str(self._rolling)
            effects += self._give_up_roll(f"replicas of node {names} are not in sync")
        return effects

    # -- the rules -------------------------------------------------------------------------

    def _start(self, node: _Node, now: float) -> Effect:
        node.state, node.started_at, node.is_settled = State.STARTING, now, False
        return Start(node.node_id)

    def _running(self) -> list[_Node]:
        """Return the nodes that have a process, in the order in which they are stopped."""
        has_none = (State.STOPPED, State.WAITING)
        return [node for node in reversed(self._nodes.values()) if node.state not in has_none]

    def _stop_next(self, now: float) -> list[Effect]:
        self._cancel_restarts()
        running = self._running()
        if not running:
            return [Finish(self._exit_code)]
        if any(node.state is State.STOPPING for node in running):
            return []
        return self._terminate(running[:1], now)

    def _stop_all_at_once(self, now: float) -> list[Effect]:
        self._stop_requests = max(self._stop_requests, 2)
        self._cancel_restarts()
        running = [node for node in self._running() if node.state is not State.STOPPING]
        return self._terminate(running, now) or self._stop_next(now)

    def _cancel_restarts(self) -> None:
        for node in self._nodes.values():
            if node.state is State.WAITING:
                node.state = State.STOPPED

    def _terminate(self, nodes: Iterable[_Node], now: float) -> list[Effect]:
        effects: list[Effect] = []
        for node in nodes:
            node.state, node.due = State.STOPPING, now + STOP_S_MAX
            effects.append(Terminate(node.node_id))
        return effects

    def _is_rolling(self) -> bool:
        return self._rolling is not None or bool(self._left_to_roll)

    def _advance_roll(self, now: float) -> list[Effect]:
        """Restart the next node if all of them are in service."""
        if not self._is_rolling() or not all(map(_is_whole, self._nodes.values())):
            return []
        effects: list[Effect] = []
        if self._rolling is not None:
            effects.append(Report(f"node {self._rolling} is restarted and in sync"))
            self._rolling = None
        if not self._left_to_roll:
            return [*effects, Report("rolling restart done")]
        self._rolling = self._left_to_roll.pop()
        self._roll_due = now + ROLL_S_MAX
        return effects + self._terminate([self._nodes[self._rolling]], now)

    def _give_up_roll(self, reason: str) -> list[Effect]:
        left = ", ".join(map(str, reversed(self._left_to_roll))) or "none"
        self._rolling, self._left_to_roll = None, []
        return [Report(f"rolling restart given up: {reason}; not restarted: {left}", True)]


def _is_whole(node: _Node) -> bool:
    return node.state is State.READY and node.is_settled


def _ending(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
