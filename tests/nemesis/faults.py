"""Faults for a cluster, by name. Each injects a fault, holds it, and repairs it.

A fault chooses its victim with the stage's seeded Random; the current ``leader`` and ``controller``
are looked up in the cluster.
"""

import errno
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.nemesis.environment import NodeEnvironment
from tests.nemesis.namespaces import Net
from tests.nemesis.watch import (
    Watcher,
    controller_of,
    has_settled,
    move_replica,
    reassign_partition,
    wait_until,
)

from ottla.testing import Cluster

ASK_S_MAX = 30.0
DISK_S_MAX = 30.0
MOVES_S_MAX = 60.0
HOUR_MS = 3_600_000
FLAP_S = 1.0
STUTTER_STOPPED_S = 0.12
STUTTER_RUNNING_S = 0.03


@dataclass
class Stage:
    """A cluster under load. ``hold_s`` is how long a fault lasts."""

    cluster: Cluster
    watcher: Watcher
    random: Random
    hold_s: float
    wait_whole: Callable[[], None]
    environment: NodeEnvironment
    net: Net | None = None
    """The nodes' networks; None where relays on loopback stand for them."""

    def hold(self) -> None:
        time.sleep(self.hold_s)

    def any_node(self) -> int:
        return self.random.choice(self.cluster.node_ids)

    def leader(self) -> int:
        """Return the leader of a random partition."""
        index = self.random.choice(sorted(self.watcher.leaders))
        return self.watcher.leaders[index]

    def controller(self) -> int:
        return wait_until(lambda: controller_of(self.cluster), ASK_S_MAX, "a controller") or 0

    def is_alive(self, node_id: int) -> bool:
        """Return whether a node's process is running."""
        process_id = self.cluster.process_id(node_id)
        try:
            text = Path(f"/proc/{process_id}/stat").read_text()
        except FileNotFoundError:
            return False
        return text.rpartition(")")[2].split()[0] != "Z"

    def others(self, node_id: int) -> list[int]:
        return [each for each in self.cluster.node_ids if each != node_id]

    def split(self) -> tuple[list[int], list[int]]:
        """Split the nodes into two sides, the first one smaller."""
        nodes = list(self.cluster.node_ids)
        self.random.shuffle(nodes)
        middle = len(nodes) // 2
        return nodes[:middle], nodes[middle:]


def _kill(stage: Stage, *nodes: int) -> None:
    stage.cluster.kill(*nodes)
    stage.hold()
    stage.cluster.start(*nodes)


def kill_leader(stage: Stage) -> None:
    _kill(stage, stage.leader())


def kill_controller(stage: Stage) -> None:
    _kill(stage, stage.controller())


def kill_all(stage: Stage) -> None:
    _kill(stage, *stage.cluster.node_ids)


def kill_and_back(stage: Stage) -> None:
    """Kill and restart at once, before any session can expire."""
    victim = stage.leader()
    stage.cluster.kill(victim)
    stage.cluster.start(victim)


def pause_leader(stage: Stage) -> None:
    """Pause the leader: when it resumes it still believes that it leads."""
    victim = stage.leader()
    stage.cluster.pause(victim)
    stage.hold()
    stage.cluster.resume(victim)


def pause_controller(stage: Stage) -> None:
    victim = stage.controller()
    stage.cluster.pause(victim)
    stage.hold()
    stage.cluster.resume(victim)


def pause_most(stage: Stage) -> None:
    """Pause a majority of the nodes."""
    _, most = stage.split()
    stage.cluster.pause(*most)
    stage.hold()
    stage.cluster.resume(*most)


def isolate_leader(stage: Stage) -> None:
    """Cut the leader off from the other nodes, not from clients."""
    stage.cluster.isolate(stage.leader())
    stage.hold()
    stage.cluster.heal()


def split(stage: Stage) -> None:
    stage.cluster.partition(*stage.split())
    stage.hold()
    stage.cluster.heal()


def mute_leader(stage: Stage) -> None:
    """Drop what the leader sends to the others; it receives everything."""
    victim = stage.leader()
    stage.cluster.partition(victim, stage.others(victim), one_way=True)
    stage.hold()
    stage.cluster.heal()


def deaf_leader(stage: Stage) -> None:
    """Drop what the others send to the leader; they receive everything."""
    victim = stage.leader()
    stage.cluster.partition(stage.others(victim), victim, one_way=True)
    stage.hold()
    stage.cluster.heal()


def one_way(stage: Stage) -> None:
    """Drop what one node sends to one other."""
    speaker = stage.any_node()
    stage.cluster.partition(speaker, stage.random.choice(stage.others(speaker)), one_way=True)
    stage.hold()
    stage.cluster.heal()


def bridge(stage: Stage) -> None:
    """Cut two nodes off from each other; the others reach both."""
    one = stage.any_node()
    stage.cluster.partition(one, stage.random.choice(stage.others(one)))
    stage.hold()
    stage.cluster.heal()


def flapping(stage: Stage) -> None:
    victim = stage.leader()
    end = time.monotonic() + stage.hold_s
    while time.monotonic() < end:
        stage.cluster.isolate(victim)
        time.sleep(FLAP_S)
        stage.cluster.heal()
        time.sleep(FLAP_S)


def unplug_leader(stage: Stage) -> None:
    """Unplug the leader's network: no node and no client reaches it."""
    assert stage.net is not None
    stage.net.unplug(stage.leader())
    stage.hold()
    stage.cluster.heal()


def slow_link(stage: Stage) -> None:
    """Slow the link to one node: a follower falls behind."""
    assert stage.net is not None
    stage.net.slow(stage.any_node())
    stage.hold()
    stage.cluster.heal()


def reassign(stage: Stage) -> None:
    """Reassign or reorder replicas, and kill a leader meanwhile."""
    nodes = list(stage.cluster.node_ids)
    for index in sorted(stage.watcher.leaders):
        stage.random.shuffle(nodes)
        reassign_partition(stage.cluster, stage.watcher.topic, index, nodes[:3])
    _kill(stage, stage.leader())


def move_directories(stage: Stage) -> None:
    """Move replicas between their nodes' directories, and kill a leader meanwhile."""
    victim, end = stage.leader(), time.monotonic() + stage.hold_s
    _move_replicas(stage)
    stage.cluster.kill(victim)
    while time.monotonic() < end:
        _move_replicas(stage)
    stage.cluster.start(victim)
    _move_replicas(stage)
    for node_id in stage.cluster.node_ids:
        wait_until(
            lambda node_id=node_id: has_settled(stage.cluster, node_id),
            MOVES_S_MAX,
            f"the moves of node {node_id}",
        )


def _move_replicas(stage: Stage) -> None:
    for node_id in stage.cluster.running:
        for index in sorted(stage.watcher.leaders):
            directory = stage.random.choice(stage.cluster.directories(node_id))
            move_replica(stage.cluster, node_id, stage.watcher.topic, index, str(directory))


def slow_node(stage: Stage) -> None:
    """Give a node a fifth of the CPU: it is stopped most of the time, in short slices."""
    victim = stage.any_node()
    end = time.monotonic() + stage.hold_s
    while time.monotonic() < end:
        stage.cluster.pause(victim)
        time.sleep(STUTTER_STOPPED_S)
        stage.cluster.resume(victim)
        time.sleep(STUTTER_RUNNING_S)


def rolling_restart(stage: Stage) -> None:
    """Restart each node in turn by controlled shutdown, once all replicas are in sync."""
    for node_id in stage.cluster.node_ids:
        stage.cluster.restart(node_id)
        stage.wait_whole()


def _lose_disk(stage: Stage, fail: Callable[[int], None]) -> None:
    """Fail the only disk of a node: it exits, and serves again once the disk works."""
    victim = stage.leader()
    fail(victim)
    wait_until(lambda: not stage.is_alive(victim), DISK_S_MAX, f"node {victim} ending")
    stage.hold()
    stage.environment.heal(victim)
    stage.cluster.kill(victim)
    stage.cluster.start(victim)


def full_disk(stage: Stage) -> None:
    _lose_disk(stage, stage.environment.fill)


def failing_write(stage: Stage) -> None:
    _lose_disk(stage, lambda node_id: stage.environment.fail_writes(node_id, errno.EIO))


def failing_fsync(stage: Stage) -> None:
    _lose_disk(stage, lambda node_id: stage.environment.fail_syncs(node_id, errno.EIO))


def slow_fsync(stage: Stage) -> None:
    victim = stage.any_node()
    stage.environment.slow_syncs(victim, int(stage.hold_s * 500))
    stage.hold()
    stage.environment.heal(victim)


def clock_jumps(stage: Stage) -> None:
    """Move the wall clock of one node back and forth, by an hour and by ten years."""
    victim = stage.any_node()
    for hours in (1, -1, 24 * 3650):
        stage.environment.set_clock_ahead(victim, hours * HOUR_MS)
        time.sleep(stage.hold_s / 3)
    stage.environment.heal(victim)


FAULTS: Mapping[str, Callable[[Stage], None]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        kill_leader,
        kill_controller,
        kill_all,
        kill_and_back,
        pause_leader,
        pause_controller,
        pause_most,
        isolate_leader,
        split,
        mute_leader,
        deaf_leader,
        one_way,
        bridge,
        flapping,
        unplug_leader,
        slow_link,
        slow_node,
        reassign,
        move_directories,
        rolling_restart,
        full_disk,
        failing_write,
        failing_fsync,
        slow_fsync,
        clock_jumps,
    )
}
NEED_DISKS = {"full-disk"}
NEED_NETWORKS = {"unplug-leader", "slow-link"}
NEED_SHIM = {"failing-write", "failing-fsync", "slow-fsync", "clock-jumps"}


def missing_for(stage: Stage, name: str) -> str | None:
    """Return what a fault needs and this machine lacks; None if it has everything."""
    environment = stage.environment
    if name in NEED_NETWORKS and stage.net is None:
        return "nodes have no networks of their own"
    if name == "slow-link" and stage.net is not None and not stage.net.is_slowable:
        return "there is no tc command"
    if name in NEED_DISKS and not environment.has_disks:
        return "no tmpfs may be mounted"
    if name in NEED_SHIM and environment.library is None:
        return "there is no C compiler"
    return None


def plan(names: list[str], rng: Random) -> list[str]:
    """Return every fault once, in random order."""
    order = list(names)
    rng.shuffle(order)
    return order
