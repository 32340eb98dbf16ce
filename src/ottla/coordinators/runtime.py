"""All shards of one internal topic that this node leads, and the service that loads them.

Partitions report leadership changes in the order of the metadata image. Shards are loaded in
pieces, one piece of each loading shard in turn; the event loop is free between two pieces. Shards
themselves are synchronous; the service only loads them and fires their timers.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic

import msgspec

from ottla.coordinators.decision import Decision
from ottla.coordinators.pending_replies import RecordedReply
from ottla.coordinators.ports import ShardLog
from ottla.coordinators.shard import Machine, Shard, ShardSettings, ShardState
from ottla.coordinators.topics import partition_for
from ottla.protocol.faults import Fault, NotCoordinator
from ottla.protocol.records.control import EndTxnMarker
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import LeaderEpoch, Millis
from ottla.runtime.pending import Pending

log = logging.getLogger(__name__)


class RuntimeParts(msgspec.Struct, Generic[Machine], frozen=True):
    """What a runtime is made of.

    ``open_log`` returns None for a partition that this node does not lead any more.
    ``partition_count`` is that of the topic.
    """

    name: str
    topic: str
    open_log: Callable[[int], ShardLog | None]
    new_machine: Callable[[int], Machine]
    settings: ShardSettings
    partition_count: Callable[[], int] = lambda: 1


class CoordinatorRuntime(Generic[Machine]):
    """The shards of one topic. A service: run it for as long as shards are to be loaded."""

    def __init__(self, parts: RuntimeParts[Machine]) -> None:
        self.name = parts.name
        self.topic = parts.topic
        self._parts = parts
        self._shards: dict[int, Shard[Machine]] = {}
        self._loading: deque[tuple[int, Shard[Machine]]] = deque()
        self._wake = asyncio.Event()
        self._wakes_at: Millis | None = None

    # -- leadership ----------------------------------------------------------

    def on_led(self, topic: str, index: int, epoch: LeaderEpoch) -> None:
        """Start to coordinate a partition, or continue in a newer epoch.

        A leader that is elected again keeps its log, so its state stays valid.
        """
        if topic != self.topic:
            return
        shard = self._shards.get(index)
        if shard is not None and shard.state is not ShardState.CLOSED:
            shard.epoch = max(shard.epoch, epoch)
            return
        self._open(index, epoch)

    def on_unled(self, topic: str, index: int, epoch: LeaderEpoch | None) -> None:
        """Stop coordinating a partition, unless it is already led in a newer epoch."""
        if topic != self.topic:
            return
        shard = self._shards.get(index)
        if shard is None or (epoch is not None and epoch < shard.epoch):
            return
        del self._shards[index]
        shard.close()
        log.info("shard unloaded shard=%s", shard.name)

    def _open(self, index: int, epoch: LeaderEpoch) -> None:
        shard_log = self._parts.open_log(index)
        if shard_log is None:
            return
        name = f"{self.topic}-{index}"
        machine = self._parts.new_machine(index)
        shard = Shard(name, epoch, shard_log, machine, self._parts.settings)
        shard.on_lost = lambda: self._on_lost(index, shard)
        shard.on_timers = lambda: self._on_timers(shard)
        shard.on_held = lambda: _soon(shard.flush)
        self._shards[index] = shard
        self._loading.append((index, shard))
        self._wake.set()

    def _on_lost(self, index: int, shard: Shard[Machine]) -> None:
        """Load the shard again from the log: the partition may still be led here."""
        if self._shards.get(index) is shard:
            del self._shards[index]
            self._open(index, shard.epoch)

    # -- requests ------------------------------------------------------------

    def index_of(self, key: str) -> int:
        """Return the partition that a group id, transactional id or share key belongs to."""
        return partition_for(key, self._parts.partition_count())

    def read(self, key: str) -> Any:  # noqa: ANN401 - each machine has a view of its own
        """Return the committed view of the shard of a key. Raises as `shard`."""
        return self.shard(self.index_of(key)).committed()

    def views(self) -> list[Any]:
        """Return the committed views of all active shards, by number."""
        return [shard.committed() for _, shard in self.active()]

    def write(
        self,
        key: str,
        decide: Callable[[Machine, Millis], Decision],
        *,
        may_linger: bool = False,
    ) -> Pending[Any]:
        """Decide against the shard of a key; return the reply, which fails as that of `submit`."""
        return self.submit(
            self.index_of(key),
            lambda machine, now, future: decide(machine, now),
            may_linger=may_linger,
        )

    def write_deferred(
        self, key: str, decide: Callable[[Machine, Millis, Pending[Any]], Decision]
    ) -> Pending[Any]:
        """Decide against the shard of a key; ``decide`` may keep the reply and answer it later."""
        return self.submit(self.index_of(key), decide)

    def write_to_all(self, decide: Callable[[Machine, Millis], Decision]) -> None:
        """Decide against every active shard. There is no reply; faults are ignored."""
        for _, shard in list(self.active()):
            shard.submit(decide, RecordedReply())

    def shard(self, index: int) -> Shard[Machine]:
        """Return an active shard. Raises NotCoordinator, CoordinatorLoading."""
        shard = self._shards.get(index)
        if shard is None:
            raise NotCoordinator(f"{self.topic}-{index} is not led here")
        shard.check_active()
        return shard

    def active(self) -> Iterator[tuple[int, Shard[Machine]]]:
        """Yield the active shards, by number."""
        for index in sorted(self._shards):
            if self._shards[index].state is ShardState.ACTIVE:
                yield index, self._shards[index]

    def is_loading(self) -> bool:
        """Whether some shard is still loading."""
        return any(shard.state is ShardState.LOADING for shard in self._shards.values())

    def submit(
        self,
        index: int,
        decide: Callable[[Machine, Millis, Pending[Any]], Decision],
        *,
        may_linger: bool = False,
    ) -> Pending[Any]:
        """Decide against a shard; return the reply.

        ``decide`` gets the machine, wall time and the reply to this request, which it may keep by
        replying `LATER`. ``may_linger`` is as in `Shard.submit`. The reply fails with
        NotCoordinator, CoordinatorLoading, CoordinatorNotAvailable, and every fault that ``decide``
        raises.
        """
        reply: Pending[Any] = Pending()
        try:
            shard = self.shard(index)
        except Fault as fault:
            reply.fail(fault)
        else:
            shard.submit(
                lambda machine, now: decide(machine, now, reply), reply, may_linger=may_linger
            )
        return reply

    def end_transaction(
        self, index: int, producer: Producer, marker: EndTxnMarker, version: int = 0
    ) -> Pending[None]:
        """Write the marker that ends a producer's transaction in a shard. Raises as `shard`."""
        reply: Pending[None] = Pending()
        self.shard(index).end_transaction(producer, marker, reply, version)
        return reply

    # -- the service ---------------------------------------------------------

    async def run(self, ready: Callable[[], None]) -> None:
        """Load shards and fire their timers until cancelled; then close all shards."""
        ready()
        try:
            while True:
                self._wake.clear()
                self._load_some()
                await self._ring()
                await self._rest()
        finally:
            for index in sorted(self._shards):
                self._shards.pop(index).close()
            self._loading.clear()

    def _load_some(self) -> None:
        """Load the next piece of one shard."""
        if not self._loading:
            return
        index, shard = self._loading.popleft()
        if shard.state is not ShardState.LOADING:
            return
        try:
            is_active = shard.load_step()
        except (Fault, OSError) as error:
            log.error("shard cannot be loaded shard=%s reason=%s", shard.name, error)  # noqa: TRY400
            return
        if is_active:
            log.info("shard loaded shard=%s epoch=%d end=%d", shard.name, shard.epoch, shard.end)
        else:
            self._loading.append((index, shard))

    async def _ring(self) -> None:
        """Fire the timers that are due; other tasks run after each shard that had any."""
        now = self._parts.settings.clock.monotonic()
        for _, shard in list(self.active()):
            due = shard.next_due()
            if due is None or due > now or shard.state is not ShardState.ACTIVE:
                continue
            shard.on_due()
            await asyncio.sleep(0)

    async def _rest(self) -> None:
        """Wait until a shard has to be loaded or a timer is due."""
        if self._loading:
            await asyncio.sleep(0)
            return
        now = self._parts.settings.clock.monotonic()
        times = (shard.next_due() for shard in self._shards.values())
        self._wakes_at = min((time for time in times if time is not None), default=None)
        wait_ms = None if self._wakes_at is None else max(0, self._wakes_at - now)
        try:
            async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            pass
        finally:
            self._wakes_at = None

    def _on_timers(self, shard: Shard[Machine]) -> None:
        due = shard.next_due()
        if due is not None and (self._wakes_at is None or due < self._wakes_at):
            self._wake.set()


def _soon(call: Callable[[], None]) -> None:
    """Call a function after the event loop's current callback."""
    asyncio.get_running_loop().call_soon(call)
