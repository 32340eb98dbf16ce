"""What is loaded or made when it is first needed, instead of when the process starts.

Loading code is nearly all of what a start costs, and most of the code serves requests that come
later or never. A module that is late is named twice, so that types and layers are checked as if
it were imported:

    if TYPE_CHECKING:
        from ottla.controller import acls
    else:
        acls = LazyModule("ottla.controller.acls")

Whatever is late takes its time on first use. A process that serves loads it before that, in
slices, once it is up (`ottla.cli.warming`).
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Generic, TypeVar

Made = TypeVar("Made")


class LazyModule:
    """Stands for a module, and loads it when something of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:  # noqa: ANN401 - whatever the module holds
        found = getattr(import_module(self._name), attribute)
        # From now on found without a detour.
        self.__dict__[attribute] = found
        return found


class Lazy(Generic[Made]):
    """A value that is made when it is first asked for, once."""

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make = make
        self._made: list[Made] = []

    @property
    def is_made(self) -> bool:
        """Whether somebody has asked."""
        return bool(self._made)

    def get(self) -> Made:
        """Return it. Raises what making it raises, and is then made anew the next time."""
        if not self._made:
            self._made.append(self._make())
        return self._made[0]
