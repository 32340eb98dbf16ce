"""The largest matching of a bipartite graph (Hopcroft and Karp), without recursion."""

from collections import deque
from collections.abc import Sequence


def matching_size(edges: Sequence[Sequence[int]], right_count: int) -> int:
    """Return how many left nodes can be paired at once; ``edges[left]`` lists right nodes.

    Takes time proportional to the number of edges times the root of the number of nodes.
    """
    left_of: list[int] = [-1] * right_count
    right_of: list[int] = [-1] * len(edges)
    size = 0
    while True:
        levels = _levels(edges, left_of, right_of)
        if levels is None:
            return size
        cursors = [0] * len(edges)
        for left in range(len(edges)):
            if right_of[left] < 0 and _augment(left, edges, levels, cursors, left_of, right_of):
                size += 1


def _levels(
    edges: Sequence[Sequence[int]], left_of: list[int], right_of: list[int]
) -> list[int] | None:
    """Return the distance of each left node from a free one; None if no path can be augmented."""
    levels = [0 if right < 0 else -1 for right in right_of]
    waiting = deque(left for left, level in enumerate(levels) if level == 0)
    is_augmentable = False
    while waiting:
        left = waiting.popleft()
        for right in edges[left]:
            other = left_of[right]
            if other < 0:
                is_augmentable = True
            elif levels[other] < 0:
                levels[other] = levels[left] + 1
                waiting.append(other)
    return levels if is_augmentable else None


def _augment(
    start: int,
    edges: Sequence[Sequence[int]],
    levels: list[int],
    cursors: list[int],
    left_of: list[int],
    right_of: list[int],
) -> bool:
    path = [start]
    while path:
        left = path[-1]
        if cursors[left] >= len(edges[left]):
            levels[left] = -2
            path.pop()
            if path:
                cursors[path[-1]] += 1
            continue
        other = left_of[edges[left][cursors[left]]]
        if other < 0:
            for node in path:
                right = edges[node][cursors[node]]
                left_of[right], right_of[node] = node, right
            return True
        if levels[other] == levels[left] + 1:
            path.append(other)
        else:
            cursors[left] += 1
    return False
