"""Parses and compares schemas on a thread, and keeps what was parsed last.

One thread: a schema that takes long delays other registrations, not the node. Every item is bounded
by the schema languages; a request has `WORK_S_MAX` for all of its items together.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from ottla.registry.rules import errors
from ottla.registry.rules.schema_work import (
    Parse,
    Results,
    WorkItem,
    WorkNeeded,
    WorkResult,
    parse_schema,
    perform,
)
from ottla.runtime.ports import Worker
from ottla.schemas.contract import ParsedSchema

CHARACTERS_KEPT_MAX: Final = 16 << 20
"""Characters of schemas that stay parsed."""
WORK_S_MAX: Final = 20.0
ROUNDS_MAX: Final = 20
"""How often a decision may ask for more work."""

Result = TypeVar("Result")


class ParsedSchemas:
    """The schemas that were parsed last, used by the thread alone."""

    def __init__(self, characters_max: int = CHARACTERS_KEPT_MAX) -> None:
        self._characters_max = characters_max
        self._characters = 0
        self._schemas: OrderedDict[Parse, ParsedSchema] = OrderedDict()

    def parse(self, item: Parse) -> ParsedSchema:
        """Return a parsed schema. Raises InvalidSchema."""
        schema = self._schemas.get(item)
        if schema is not None:
            self._schemas.move_to_end(item)
            return schema
        schema = parse_schema(item)
        self._schemas[item] = schema
        self._characters += _size(item)
        while self._characters > self._characters_max and self._schemas:
            oldest, _ = self._schemas.popitem(last=False)
            self._characters -= _size(oldest)
        return schema


def _size(item: Parse) -> int:
    return len(item.schema.text) + sum(len(text) for _, text in item.schema.references)


class SchemaWorker:
    """Has decisions made, with the work that they need done on a thread."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._parsed = ParsedSchemas()

    async def decide(self, results: Results, decide: Callable[[Results], Result]) -> Result:
        """Call ``decide`` until it needs no more work; return its result.

        Raises:
            Rejection: the work takes too long. Whatever ``decide`` raises.
        """
        for _ in range(ROUNDS_MAX):
            try:
                return decide(results)
            except WorkNeeded as needed:
                await self.carry_out(results, needed.items)
        raise errors.timed_out("The schema needs too much work")

    async def carry_out(self, results: Results, items: list[WorkItem]) -> None:
        """Add the results of items."""
        try:
            async with asyncio.timeout(WORK_S_MAX):
                for item in items:
                    work: Callable[[], WorkResult] = partial(perform, item, self._parsed.parse)
                    results.add(item, await self._worker.run(work))
        except TimeoutError:
            raise errors.timed_out("The schema takes too long to parse or compare") from None
