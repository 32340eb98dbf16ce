"""Which leader epochs of other replicas a replica accepts.

An epoch is an int32 that only grows, is persisted, and increases by one with every election. A
replica that adopts 2^31-1 can never take part in an election again, so one forged or damaged
message would disable it permanently. Real epochs grow by one per election, about a second apart:

    request   at most `STEP_MAX` above the replica's own epoch: more than a day of continuous
              elections, in one message that the replica did not ask for
    reply     anything up to `LEARNED_MAX`: the replica chose the sender

A replica that missed more than `STEP_MAX` elections, or a new one, is therefore not lost: it
rejects
the request, asks the voters itself once its timeout has passed, and accepts the reply. Close to the
end of the range epochs must still grow one by one (`NEAR`), so that `RESERVE` elections are left
even
after the largest jump.
"""

from typing import Final

from ottla.protocol.types import LeaderEpoch

EPOCH_LAST: Final = 2**31 - 1
RESERVE: Final = 2**20
LEARNED_MAX: Final = EPOCH_LAST - RESERVE
STEP_MAX: Final = 100_000
NEAR: Final = 100


class EpochsExhausted(Exception):
    """No election is possible any more: the epoch has its largest value."""


def is_plausible(own: LeaderEpoch, offered: LeaderEpoch, *, is_reply: bool) -> bool:
    """Return whether ``offered`` can be a real epoch for a replica in epoch ``own``."""
    step = offered - own
    if step <= NEAR:
        return offered < EPOCH_LAST
    return offered <= LEARNED_MAX and (is_reply or step <= STEP_MAX)


def next_epoch(epoch: LeaderEpoch) -> LeaderEpoch:
    """Return the epoch of the next election.

    Raises:
        EpochsExhausted: there is none; the node must stop.
    """
    if epoch >= EPOCH_LAST:
        raise EpochsExhausted(exhausted("the quorum"))
    return LeaderEpoch(epoch + 1)


def exhausted(what: str) -> str:
    """Return the message for an operator whose ``what`` has the largest epoch."""
    return (
        f"{what} is in leader epoch {EPOCH_LAST}, the largest that there is, so no leader can be "
        "elected. Elections do not lead there: a forged or damaged message did. Stop all "
        "controllers. In the quorum-state file of each, set leaderEpoch to one number, the same "
        "everywhere and not below the last epoch in any of their metadata logs ('ottla log dump' "
        "shows it), and set leaderId and votedId to -1; then start them. If only this controller "
        "has the epoch, format its metadata directory again instead and let it join."
    )
