"""Python source under construction: lines, indentation, unique names and constants."""

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Final

# Structs or strings that a codec in steps reads or writes between two yields, and plain numbers.
ELEMENTS_PER_STEP: Final = 128
VALUES_PER_STEP: Final = 8192


class _Packings(dict[int, object]):
    """Bound methods by count: those of small counts are cached, others made on demand."""

    COUNT_KEPT = 64

    def __init__(self, formats: str, method: str) -> None:
        super().__init__()
        self._formats = formats
        self._method = method

    def __missing__(self, count: int) -> object:
        bound: object = getattr(Struct(f">{count}{self._formats}"), self._method)
        if count <= self.COUNT_KEPT:
            self[count] = bound
        return bound


class Source:
    """A function under construction, and the objects that its globals will be.

    Constants are shared: asking twice for one struct format gives one name.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, object] = {}
        self._depth = 0
        self._used = 0
        self._formats: dict[str, str] = {}

    def line(self, text: str) -> None:
        """Add a line at the present depth."""
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add a line that opens a block; lines inside the ``with`` belong to it."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def step(self, every: int) -> None:
        """Count one element in the local ``steps``, and yield at each ``every``-th."""
        self.line("steps += 1")
        with self.block(f"if not steps % {every}:"):
            self.line("yield")

    def fresh(self, stem: str) -> str:
        """Return a unique name; ``stem`` makes the source readable."""
        self._used += 1
        return f"{stem}_{self._used}"

    def constant(self, stem: str, value: object) -> str:
        """Bind an object to a fresh global name."""
        name = self.fresh(stem)
        self.names[name] = value
        return name

    def packing(self, formats: str, method: str) -> str:
        """Return the name of a bound ``pack`` or ``unpack_from`` of a big-endian format."""
        key = method + formats
        if key not in self._formats:
            bound = getattr(Struct(">" + formats), method)
            self._formats[key] = self.constant(method, bound)
        return self._formats[key]

    def packings(self, formats: str, method: str) -> str:
        """Return the name of a table from a count to what packs or unpacks so many values."""
        key = f"{method}s{formats}"
        if key not in self._formats:
            self._formats[key] = self.constant(f"{method}s", _Packings(formats, method))
        return self._formats[key]

    def function(self, name: str, title: str) -> object:
        """Compile the source and return the function of that name."""
        code = compile("\n".join(self.lines) + "\n", f"<{title}>", "exec")
        exec(code, self.names)  # noqa: S102 - our own schema's names, nothing from outside
        return self.names[name]
