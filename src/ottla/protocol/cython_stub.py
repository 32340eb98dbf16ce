"""The few names of ``cython`` that our compiled modules use, meaning nothing.

A module with a compiled form imports ``cython`` and falls back to this, so that an install
without Cython runs the same source as plain Python. Type checkers always read this one: here
a C integer is an ``int``, and every decorator hands back what it was given.
"""

import builtins
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

_Decorated = TypeVar("_Decorated")

compiled: Final = False

bint: TypeAlias = builtins.bool
void: TypeAlias = None
int: TypeAlias = builtins.int
uint: TypeAlias = builtins.int
longlong: TypeAlias = builtins.int
ulonglong: TypeAlias = builtins.int
uchar: TypeAlias = builtins.int
p_uchar: TypeAlias = builtins.bytearray  # bytes that are written to
Py_ssize_t: TypeAlias = builtins.int


class _Subscripted:
    """Stands for array types such as ``const[uchar][::1]``, which only Cython reads."""

    def __getitem__(self, item: object) -> "_Subscripted":
        return self


const: Final = _Subscripted()


def _unchanged(decorated: _Decorated) -> _Decorated:
    return decorated


cclass = final = cfunc = ccall = inline = _unchanged


def declare(kind: type[object], *, visibility: str) -> Any:  # noqa: ANN401 - what it holds
    """Declare an attribute of a class that is C's; ``public`` where Python may use it, too."""
    return kind()


def locals(**types: object) -> Callable[[_Decorated], _Decorated]:
    """Declare the C types of a function's variables; a string where Python cannot write one."""
    return _unchanged


def exceptval(value: object = None, *, check: bool = True) -> Callable[[_Decorated], _Decorated]:
    """Declare which return value announces an exception; ``check`` when it is also a legal one.

    Without a value and ``check=False``: the function never raises.
    """
    return _unchanged
