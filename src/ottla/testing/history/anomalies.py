"""The anomalies of a history, by name."""

import enum
from dataclasses import dataclass


class Label(enum.StrEnum):
    """The violated guarantee. Names as in Jepsen, where it has one."""

    INCONSISTENT_OFFSET = "inconsistent-offset"
    DUPLICATE = "duplicate"
    LOST_WRITE = "lost-write"
    FAILED_BUT_SEEN = "failed-but-seen"
    PHANTOM = "phantom"
    REORDER = "reorder"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    POLL_SKIP = "poll-skip"
    ABORTED_READ = "aborted-read"
    OPEN_READ = "open-read"
    TORN_TXN = "torn-txn"
    G1C = "g1c"
    HW_REGRESS = "hw-regress"
    LSO_REGRESS = "lso-regress"
    COMMITTED_OFFSET_REGRESS = "committed-offset-regress"
    TWO_LEADERS = "two-leaders"
    REPLICAS_DIFFER = "replicas-differ"
    UNSEEN_AFTER_HEAL = "unseen-after-heal"
    SLOW_AFTER_HEAL = "slow-after-heal"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One violation. ``where``: the partition, group or transaction."""

    label: Label
    where: str
    detail: str

    def __str__(self) -> str:
        return f"{self.label} {self.where}: {self.detail}"
