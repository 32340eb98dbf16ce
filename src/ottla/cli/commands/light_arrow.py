"""Import pyarrow without NumPy and pandas, which it would load although no command uses them.

pyarrow imports NumPy and dateutil with its modules, and pandas when it builds its first array,
where they are installed. That takes longer than most queries, and pyarrow works without them. This
is for the processes of commands alone: their pyarrow stays without them until the process ends.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

_UNUSED: Final = ("numpy", "pandas", "dateutil")


class _Hiding(MetaPathFinder):
    """Makes the import of some packages fail as if they were not installed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise ModuleNotFoundError for a hidden package; leave all others to Python."""
        if name in _UNUSED:
            raise ModuleNotFoundError(f"{name} is hidden from pyarrow", name=name)
        return None


def import_light_arrow() -> None:
    """Import pyarrow so that it does without `_UNUSED`, unless it is imported already.

    Raises:
        ModuleNotFoundError: pyarrow is not installed.
    """
    if "pyarrow" in sys.modules:
        return
    hiding = _Hiding()
    sys.meta_path.insert(0, hiding)
    try:
        import pyarrow.dataset  # builds its first array  # noqa: F401
    finally:
        sys.meta_path.remove(hiding)
