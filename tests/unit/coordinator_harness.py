"""An in-memory log and a fixed clock, for tests of coordinators."""

from collections.abc import Callable

from ottla.protocol.faults import Fault, OffsetOutOfRange
from ottla.protocol.records.batch import read_header
from ottla.protocol.types import LeaderEpoch, Millis, Offset
from record_tools import patch_offset


class FakeClock:
    def __init__(self) -> None:
        self.wall = 1_700_000_000_000
        self.mono = 1000

    def now(self) -> Millis:
        return Millis(self.wall)

    def monotonic(self) -> Millis:
        return Millis(self.mono)

    def advance(self, ms: int) -> None:
        self.wall += ms
        self.mono += ms


class FakeLog:
    """Batches in a list. ``follows``: the high watermark advances with every append."""

    def __init__(self, *, follows: bool = True) -> None:
        self.batches: list[bytes] = []
        self.follows = follows
        self.fault: Fault | None = None
        self.epochs: list[int] = []
        self.high_watermark = Offset(0)
        self.batch_bytes_max = 1 << 20
        self.log_start = Offset(0)
        self.damaged_at: list[int] = []
        self._wakes: list[Callable[[], None]] = []

    @property
    def log_end(self) -> Offset:
        return read_header(self.batches[-1]).next_offset if self.batches else Offset(0)

    def append(
        self, batch: bytearray, *, epoch: LeaderEpoch, now: Millis, transaction_version: int = 0
    ) -> Offset:
        if self.fault is not None:
            raise self.fault
        patch_offset(batch, 0, self.log_end, epoch)
        self.batches.append(bytes(batch))
        self.epochs.append(epoch)
        if self.follows:
            self.commit()
        return self.log_end

    @property
    def commits_at_once(self) -> bool:
        return self.follows and self.fault is None

    def append_at_once(
        self, batch: bytearray, records: int, *, epoch: LeaderEpoch, now: Millis
    ) -> Offset | None:
        return self.append(batch, epoch=epoch, now=now) if self.commits_at_once else None

    def commit(self, upto: int | None = None) -> None:
        self.high_watermark = self.log_end if upto is None else Offset(upto)
        for wake in list(self._wakes):
            wake()

    def read(self, offset: Offset, bytes_max: int) -> bytes:
        if not 0 <= offset <= self.log_end:
            raise OffsetOutOfRange(str(offset))
        rest = [batch for batch in self.batches if read_header(batch).last_offset >= offset]
        if not rest:
            return b""
        return b"".join(rest)[: max(bytes_max, len(rest[0]))]

    def damaged(self, offset: Offset, fault: Fault) -> Fault:
        self.damaged_at.append(int(offset))
        return fault

    def on_advanced(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._wakes.append(wake)
        return lambda: self._wakes.remove(wake)

    def truncate_to(self, offset: int) -> None:
        self.batches = [b for b in self.batches if read_header(b).last_offset < offset]
