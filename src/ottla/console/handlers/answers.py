"""Answers of the cluster that a user may not be allowed to see."""

from collections.abc import Awaitable
from typing import TypeVar

from ottla.client.cluster import NoBroker, Refused

Answer = TypeVar("Answer")


async def or_else(answer: Awaitable[Answer], default: Answer) -> Answer:
    """Return an answer, or a default where a broker refuses or does not respond."""
    try:
        return await answer
    except (Refused, NoBroker):
        return default


async def with_failure(answer: Awaitable[Answer], default: Answer) -> tuple[Answer, str]:
    """Return an answer and no failure, or a default and why there is none."""
    try:
        return await answer, ""
    except (Refused, NoBroker) as error:
        return default, str(error)
