"""The follower's side of an incremental fetch session (KIP-227).

Pure. The first request names every partition; the leader answers with a session id, and from then
on a request names only the partitions that changed or are no longer fetched. If the leader has lost
or rejected the session, the next request is a full one.

    (id 0, epoch 0) --full answer with id--> (id, 1) --answer--> (id, 2) ...
          ^------- FETCH_SESSION_ID_NOT_FOUND, id 0 --------------|
    (id, 0)  <---- any other error or a lost connection ----------|   closes the old, starts anew
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition
from ottla.protocol.types import Uuid

FULL_EPOCH: Final = 0
EPOCH_MAX: Final = 2**31 - 1
NO_SESSION: Final = 0

Key = tuple[Uuid, int]
Wanted = Mapping[Key, FetchPartition]


class NextFetch(NamedTuple):
    """The session part of the next request."""

    session_id: int
    session_epoch: int
    partitions: dict[Key, FetchPartition]
    forgotten: list[Key]


class FetchSession:
    """A session with one leader, over one connection."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self._epoch = FULL_EPOCH
        self._sent: dict[Key, FetchPartition] = {}

    def next(self, wanted: Wanted, touched: Iterable[Key]) -> NextFetch:
        """Return the next request; its partitions count as sent once it is answered.

        ``touched`` are the keys that may have changed since the last call, or are no longer wanted.
        """
        if self._epoch == FULL_EPOCH:
            self._sent = dict(wanted)
            return NextFetch(self.session_id, FULL_EPOCH, dict(wanted), [])
        changed: dict[Key, FetchPartition] = {}
        forgotten: list[Key] = []
        for key in touched:
            each, sent = wanted.get(key), self._sent.get(key)
            if each is None:
                if self._sent.pop(key, None) is not None:
                    forgotten.append(key)
            elif each != sent:
                changed[key] = self._sent[key] = each
        return NextFetch(self.session_id, self._epoch, changed, forgotten)

    def answered(self, error: ErrorCode, session_id: int) -> None:
        """Process the header of the response."""
        if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.session_id, self._epoch = NO_SESSION, FULL_EPOCH
        elif error is not ErrorCode.NONE:
            self._epoch = FULL_EPOCH
        elif session_id == NO_SESSION:
            # The leader keeps no sessions, or has no room for this one.
            self.session_id, self._epoch = NO_SESSION, FULL_EPOCH
        else:
            self.session_id = session_id
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1

    def lost(self) -> None:
        """Start over: it is not known whether the last request arrived."""
        self._epoch = FULL_EPOCH
