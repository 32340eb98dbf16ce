"""Filter, sort and cut lists. Pure."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from ottla.operations.rows import Row

PAGE_ROWS: Final = 100
PAGE_ROWS_MAX: Final = 1_000

Item = TypeVar("Item")


class ListQuery(msgspec.Struct, frozen=True):
    """What part of a list is shown. ``sort`` is a name; with a dash in front: descending."""

    filter: str = ""
    sort: str = ""
    page: int = 1
    size: int = PAGE_ROWS


def select(
    items: Sequence[Item],
    query: ListQuery,
    name: Callable[[Item], str],
    keys: dict[str, Callable[[Item], Any]],
) -> tuple[list[Item], Row]:
    """Return the items of a page, and how many there are. All words of the filter must occur."""
    words = query.filter.lower().split()
    chosen = [item for item in items if all(word in name(item).lower() for word in words)]
    key = keys.get(query.sort.removeprefix("-"))
    if key is not None:
        chosen.sort(key=key, reverse=query.sort.startswith("-"))
    pages = max(1, -(-len(chosen) // query.size))
    page = min(query.page, pages)
    start = (page - 1) * query.size
    paging: Row = {
        "filter": query.filter,
        "sort": query.sort,
        "page": page,
        "pages": pages,
        "size": query.size,
        "matching": len(chosen),
        "total": len(items),
    }
    return chosen[start : start + query.size], paging
