"""Wait until replicas are moved, and show how far they are."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from ottla.cli.commands.reassign_throttle import Move
from ottla.cli.terminal.progress import WorkProgress
from ottla.client.admin_replicas import describe_log_dirs, list_reassignments
from ottla.client.cluster import Cluster, Refused
from ottla.protocol.faults import Fault
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsResult
from ottla.protocol.types import TopicPartition

POLL_S: Final = 0.25
_POLLS_PER_SIZE: Final = 8
"""Sizes are asked of every broker that is involved, so less often than what is left."""

Sizes = Mapping[int, Mapping[TopicPartition, int]]
"""The bytes of each replica, by broker."""


async def wait_reassigned(
    cluster: Cluster, moves: Mapping[TopicPartition, Move], progress: WorkProgress
) -> None:
    """Wait until none of the moves is in progress any more."""
    polls = 0
    while True:
        left = moves.keys() & set(await list_reassignments(cluster))
        if polls % _POLLS_PER_SIZE == 0 or not left:
            sizes = await _sizes(cluster, moves)
            progress.bytes, progress.bytes_total = copied_bytes(moves, sizes, left)
        progress.done = len(moves) - len(left)
        if not left:
            return
        progress.show()
        polls += 1
        await asyncio.sleep(POLL_S)


def copied_bytes(
    moves: Mapping[TopicPartition, Move], sizes: Sizes, left: set[TopicPartition]
) -> tuple[int, int]:
    """Return how many bytes new replicas have, and will have when all moves are done."""
    copied = total = 0
    for name, move in moves.items():
        added = [each for each in move.wanted if each not in move.now]
        whole = max((each.get(name, 0) for each in sizes.values()), default=0)
        total += whole * len(added)
        if name in left:
            copied += sum(min(sizes.get(each, {}).get(name, 0), whole) for each in added)
        else:
            copied += whole * len(added)
    return copied, total


async def _sizes(cluster: Cluster, moves: Mapping[TopicPartition, Move]) -> Sizes:
    """Ask the brokers for their replicas; one that does not answer, or denies it, is left out."""
    brokers = {each for move in moves.values() for each in (*move.now, *move.wanted)}
    found: dict[int, Mapping[TopicPartition, int]] = {}
    for broker in sorted(brokers):
        try:
            found[broker] = replica_sizes(await describe_log_dirs(cluster, broker, moves))
        except (Refused, Fault, OSError):
            continue
    return found


def replica_sizes(
    directories: Sequence[DescribeLogDirsResult], *, is_future: bool = False
) -> dict[TopicPartition, int]:
    """Return the bytes of a broker's replicas, or of those that arrive in another directory."""
    return {
        TopicPartition(topic.name, row.partition_index): row.partition_size
        for each in directories
        for topic in each.topics
        for row in topic.partitions
        if row.is_future_key == is_future
    }
