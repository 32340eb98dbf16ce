"""A controller that adds itself to the voters (``controller.quorum.auto.join.enable``).

It sends AddRaftVoter to the bootstrap servers in turn, over a new connection each time, until the
committed voters contain it. Responses are only logged: nothing else ends the attempts.

A node that an operator removed stays removed. The file ``auto-joined`` in the metadata log's
directory distinguishes it from a node that never was a voter: the file is written, durably, when
the node first finds itself among the committed voters, and holds the node's directory id. A node
that has the file and is no voter was removed, perhaps while it was down. Deleting the file makes it
join again, and so does formatting the directory, which makes the node a different replica.
"""

import asyncio
import enum
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from ottla.client.connection import Connection, Options
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.add_raft_voter import AddRaftVoterResponse
from ottla.protocol.uuids import uuid_text
from ottla.raft.core.messages import AddVoterRequest
from ottla.raft.core.raft_settings import RaftSettings
from ottla.raft.core.voters import VoterSet
from ottla.raft.rpc_codec import CHANGE_TIMEOUT_MS, to_message
from ottla.runtime.atomic_file import read_file, replace_file
from ottla.runtime.ports import Address, Disk, Network

log = logging.getLogger(__name__)

CLIENT_ID: Final = "ottla-auto-join"
FILE_NAME: Final = "auto-joined"
PAUSE_S: Final = 0.5
ANSWER_MS_MAX: Final = CHANGE_TIMEOUT_MS + 5_000


class JoinAction(enum.Enum):
    """What to do next."""

    REQUEST = "request"
    RECORD = "record"  # a voter, but the file is not written yet
    WAIT = "wait"  # a voter, and the file is written
    REMOVED = "removed"


def decide_join(*, is_voter: bool, was_voter: bool) -> JoinAction:
    """Decide the next action from whether the node is, and was, a committed voter."""
    if is_voter:
        return JoinAction.WAIT if was_voter else JoinAction.RECORD
    return JoinAction.REMOVED if was_voter else JoinAction.REQUEST


class CommittedVoters(Protocol):
    """The part of this node's own replica that is needed here."""

    def committed_voters(self) -> VoterSet | None:
        """Return the newest voters known to be committed; None before there are any."""
        ...


class AutoJoinedFile:
    """The file that marks this directory as one that has belonged to a voter."""

    def __init__(self, disk: Disk, directory: str, settings: RaftSettings) -> None:
        self._disk = disk
        self._path = f"{directory}/{FILE_NAME}"
        self._text = f"{uuid_text(settings.directory_id)}\n".encode()

    def is_set(self) -> bool:
        """Return whether the file exists and names this directory."""
        return read_file(self._disk, self._path) == self._text

    def set(self) -> None:
        """Write the file, durably."""
        replace_file(self._disk, self._path, self._text)


class AutoJoin(msgspec.Struct):
    """`Service`: joins the voters, then checks that this node is still one of them.

    ``servers`` are the bootstrap servers; with an empty list it only logs a warning, once.
    """

    settings: RaftSettings
    replica: CommittedVoters
    mark: AutoJoinedFile
    network: Network
    servers: Sequence[Address]
    options: Callable[[Address], Options] = msgspec.field(default=lambda address: Options())
    name: str = "auto join"

    async def run(self, ready: Callable[[], None]) -> None:
        """Request to join, or wait, until cancelled."""
        ready()
        if not self.servers:
            log.warning("auto join: cannot join, controller.quorum.bootstrap.servers is empty")
        was_voter = self.mark.is_set()
        is_removal_logged = False
        turn = 0
        while True:
            voters = self.replica.committed_voters()
            is_voter = voters is not None and voters.has(self.settings.key)
            match decide_join(is_voter=is_voter, was_voter=was_voter):
                case JoinAction.RECORD:
                    self.mark.set()
                    was_voter, is_removal_logged = True, False
                    log.info("auto join: this node is a voter")
                case JoinAction.REQUEST if self.servers:
                    await self._request(self.servers[turn % len(self.servers)])
                    turn += 1
                case JoinAction.REMOVED if voters is not None and not is_removal_logged:
                    is_removal_logged = True
                    log.warning(
                        "auto join: removed from the voters; delete %s to rejoin", FILE_NAME
                    )
                case _:
                    was_voter = self.mark.is_set()
            await asyncio.sleep(PAUSE_S)

    async def _request(self, server: Address) -> None:
        """Send one request to one server and log the outcome."""
        request = AddVoterRequest(
            self.settings.cluster_id, self.settings.key, self.settings.endpoints
        )
        try:
            connection = await Connection.open(
                self.network, server, client_id=CLIENT_ID, options=self.options(server)
            )
            try:
                response = await connection.send(to_message(request), timeout_ms=ANSWER_MS_MAX)
            finally:
                await connection.close()
        except (OSError, Fault) as error:
            log.info("auto join: request failed server=%s reason=%s", server, error)
            return
        assert isinstance(response, AddRaftVoterResponse)
        _log_response(server, response)


# Errors that are expected on the way: not the leader, another change in progress, not caught up.
_EXPECTED: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.INVALID_REQUEST,
    }
)


def _log_response(server: Address, response: AddRaftVoterResponse) -> None:
    level = logging.INFO if response.error_code in _EXPECTED else logging.WARNING
    message = response.error_message or ""
    log.log(level, "auto join: server=%s error=%d %s", server, response.error_code, message)
