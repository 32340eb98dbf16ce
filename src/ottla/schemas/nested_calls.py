"""Run functions that call each other recursively on a stack of their own.

Two recursive schemas, compared pair by pair, lead to chains of calls as long as the product of
their sizes: Python's stack is too short for that. Such a function is a generator: it yields the
generator of each nested call, receives that call's result, and returns its own.
"""

from collections.abc import Generator
from typing import Any, TypeVar, cast

Result = TypeVar("Result")
# The generator yields nested calls of any result type, and receives their results.
Call = Generator[Any, Any, Result]


def run_nested(call: Call[Result]) -> Result:
    """Run ``call`` and everything it calls, and return its result."""
    stack: list[Call[Any]] = [call]
    result: object = None
    while stack:
        try:
            nested = stack[-1].send(result)
        except StopIteration as stop:
            stack.pop()
            result = stop.value
        else:
            stack.append(nested)
            result = None
    return cast(Result, result)
