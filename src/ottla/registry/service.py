"""The registry as its HTTP handlers see it: the state, and changes that are written or forwarded.

A change is decided by the leader of ``_schemas``. On the leader it is written; other nodes repeat
the request there, and their reply waits until they have applied the leader's records, so that a
client reads its own writes. A request that was forwarded once is not forwarded again.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import msgspec

from ottla.protocol.types import Offset
from ottla.registry.access import Decides
from ottla.registry.http_call import APPLIED_HEADER, Call, RawRequest, Reply, json_reply
from ottla.registry.rules import errors
from ottla.registry.rules.decision import Decision
from ottla.registry.rules.schema_work import Results, WorkNeeded
from ottla.registry.rules.settings import Defaults
from ottla.registry.rules.state import RegistryState
from ottla.registry.store import NotLeading, OutcomeUnknown, SchemaStore
from ottla.registry.work import ROUNDS_MAX, SchemaWorker

audit = logging.getLogger("ottla.registry.audit")

PAUSE_S: Final = 0.05
PAUSE_S_MAX: Final = 1.0
READ_OWN_WRITE_S: Final = 2.0

Result = TypeVar("Result")
Decide = Callable[[RegistryState, Results], Decision]


class LeaderUnreachable(Exception):
    """The leader's registry could not be asked. ``is_certain``: it has not seen the request."""

    def __init__(self, reason: str, *, is_certain: bool) -> None:
        super().__init__(reason)
        self.is_certain = is_certain


class Leader(Protocol):
    """The node that leads the topic, as far as this one knows."""

    async def prepare(self) -> None:
        """Have the topic created if it does not exist; wait for it."""
        ...

    async def send(self, request: RawRequest) -> Reply:
        """Repeat a request at the leader's registry.

        Raises:
            LeaderUnreachable
        """
        ...


class RegistrySettings(msgspec.Struct, frozen=True):
    """Settings of the registry. Bytes are those of a request's body."""

    defaults: Defaults
    timeout_ms: int = 10_000
    body_bytes_max: int = 10 << 20
    cluster_id: str = ""


class SchemaRegistry:
    """What handlers use."""

    def __init__(
        self,
        store: SchemaStore,
        worker: SchemaWorker,
        leader: Leader,
        access: Decides,
        settings: RegistrySettings,
    ) -> None:
        self.store = store
        self.access = access
        self.settings = settings
        self.defaults = settings.defaults
        self._worker = worker
        self._leader = leader
        self.forwarded = 0

    @property
    def state(self) -> RegistryState:
        """What is committed, as far as this node knows."""
        return self.store.state

    async def read(self, answer: Callable[[RegistryState, Results], Result]) -> Result:
        """Answer from the state; work on schemas is done on a thread."""
        return await self._worker.decide(Results(), lambda results: answer(self.state, results))

    async def change(self, call: Call, decide: Decide, *, is_repeatable: bool = False) -> Reply:
        """Have a change decided and written by the leader.

        ``is_repeatable``: to decide it twice has the effect of once, as of a registration. Such a
        change is tried again where its outcome is unknown.

        Raises:
            Rejection
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + 2 * self.settings.timeout_ms / 1000
        results, pause_s = Results(), PAUSE_S
        while True:
            try:
                return await self._attempt(call, decide, results)
            except NotLeading:
                failure = errors.no_leader()
            except OutcomeUnknown as error:
                failure = errors.timed_out(f"Write to the Kafka store timed out: {error}")
                if not is_repeatable:
                    raise failure from error
            except LeaderUnreachable as error:
                failure = errors.forwarding_failed(
                    f"Error while forwarding the request to the leader: {error}"
                )
                if not (is_repeatable or error.is_certain):
                    raise failure from error
            if call.raw.is_forwarded or loop.time() + pause_s > until:
                raise failure
            await asyncio.sleep(pause_s)
            pause_s = min(PAUSE_S_MAX, pause_s * 2)

    async def _attempt(self, call: Call, decide: Decide, results: Results) -> Reply:
        if self.store.leads():
            return await self._write(call, decide, results)
        if call.raw.is_forwarded:
            raise NotLeading
        await self._leader.prepare()
        if self.store.leads():
            return await self._write(call, decide, results)
        reply = await self._leader.send(call.raw)
        self.forwarded += 1
        applied = dict(reply.headers).get(APPLIED_HEADER, "")
        if applied.isdecimal():
            await self.store.wait_applied(Offset(int(applied)), READ_OWN_WRITE_S)
        return reply

    async def _write(self, call: Call, decide: Decide, results: Results) -> Reply:
        for _ in range(ROUNDS_MAX):
            try:
                decision = await self.store.write(lambda state: decide(state, results))
            except WorkNeeded as needed:
                await self._worker.carry_out(results, needed.items)
                continue
            if decision.change:
                who = call.identity
                audit.info(
                    "principal=%r host=%s %s", who.principal[:300], who.host, decision.change
                )
            reply = json_reply(decision.reply) if decision.reply is not None else Reply(204, b"")
            applied = str(int(self.store.applied))
            return msgspec.structs.replace(reply, headers=((APPLIED_HEADER, applied),))
        raise errors.timed_out("The schema needs too much work")
