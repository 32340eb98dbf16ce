"""Modules and values that are loaded or constructed on first use.

Loading code is nearly all of the cost of a start, and most code serves requests that come later or
never. A lazy module is named twice, so that types and layers are checked as if it were imported:

    if TYPE_CHECKING:
        from ottla.controller import acls
    else:
        acls = LazyModule("ottla.controller.acls")

The first use of a lazy module takes the time to load it. `ottla server` loads them all before that,
one at a time, once it serves (`ottla.cli.warming`).
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Generic, TypeVar

Made = TypeVar("Made")


class LazyModule:
    """Stands for a module, and loads it when one of its attributes is read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:  # noqa: ANN401 - whatever the module holds
        found = getattr(import_module(self._name), attribute)
        # Later reads find it without calling this method.
        self.__dict__[attribute] = found
        return found


class Lazy(Generic[Made]):
    """A value that is made once, on first use."""

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make = make
        self._made: list[Made] = []

    @property
    def is_made(self) -> bool:
        """Whether the value exists."""
        return bool(self._made)

    def get(self) -> Made:
        """Return the value, making it if needed. If that raises, the next call tries again."""
        if not self._made:
            self._made.append(self._make())
        return self._made[0]
