"""Group commit without a thread: the same promise as `GroupCommit`, on virtual time."""

import asyncio
from collections.abc import Callable, Sequence

from ottla.protocol.faults import StorageFailed
from ottla.runtime.ports import Syncable


class SimCommitter:
    """`Committer` of one log directory. A round of syncs takes ``delay_s()`` simulated seconds.

    The delay comes before the sync: a crash while waiting finds nothing durable. Commits
    that arrive during a round share the next one.
    """

    def __init__(
        self,
        directory: str,
        on_failure: Callable[[Exception], None] = lambda error: None,
        *,
        delay_s: Callable[[], float] = lambda: 0.002,
    ) -> None:
        self._directory = directory
        self._on_failure = on_failure
        self._delay_s = delay_s
        self._cause: OSError | None = None
        self._is_syncing = False
        self._waiting: list[tuple[tuple[Syncable, ...], asyncio.Future[None]]] = []

    async def commit(self, files: Sequence[Syncable]) -> None:
        """Return once everything written to ``files`` before this call is durable.

        Raises:
            StorageFailed: a sync failed, now or ever before.
        """
        if self._cause is not None:
            raise self._failed()
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((tuple(files), done))
        if not self._is_syncing:
            self._begin_round()
        await done

    async def close(self) -> None:
        """Do nothing: there is no thread to end."""

    def _begin_round(self) -> None:
        round_, self._waiting = self._waiting, []
        self._is_syncing = True
        asyncio.get_running_loop().call_later(self._delay_s(), self._end_round, round_)

    def _end_round(self, round_: list[tuple[tuple[Syncable, ...], asyncio.Future[None]]]) -> None:
        self._is_syncing = False
        try:
            for file in dict.fromkeys(file for files, _ in round_ for file in files):
                file.sync()
        except OSError as error:
            self._cause = error
            round_, self._waiting = round_ + self._waiting, []
            self._on_failure(error)
        for _, done in round_:
            if done.done():
                continue
            if self._cause is None:
                done.set_result(None)
            else:
                done.set_exception(self._failed())
        if self._waiting:
            self._begin_round()

    def _failed(self) -> StorageFailed:
        fault = StorageFailed(self._directory, f"sync failed: {self._cause}")
        fault.__cause__ = self._cause
        return fault
