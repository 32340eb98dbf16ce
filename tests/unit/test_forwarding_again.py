"""A forwarded request is sent again under the same id, and the controller can tell."""

import asyncio
from functools import partial
from typing import Any

import pytest

from ottla.api.cluster.envelope import Forwarder, with_envelope
from ottla.api.cluster.quorum_requests import RaftHandlers
from ottla.api.surface.routes import Caller, Route, Routes
from ottla.metadata.answered_requests import RequestIdentity
from ottla.node.controller.controller_channel import ControllerChannel
from ottla.protocol.api_keys import ApiKey, Listener
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.schema import Message
from ottla.protocol.types import LeaderEpoch, NodeId, Uuid
from ottla.raft.core.messages import LeaderHint, VoterChangeReply
from ottla.raft.core.voters import ReplicaKey, Voter, VoterSet
from ottla.runtime.ports import Address
from ottla.server.listener import ListenerSpec, Server
from simulation.simulation import Ports, Simulation

BROKER = Caller("User:alice", "app", Address("192.0.2.1", 9), "PLAINTEXT")
AT = Address("controller", 9093)
DIRECTORY = Uuid(b"directory of 5..")


class Controller:
    """Answers forwarded requests; the connection of the first one is cut before its reply."""

    def __init__(self, ports: Ports, cut: Any) -> None:
        self.seen: list[RequestIdentity | None] = []
        routes = (
            Route(ApiKey.CREATE_TOPICS, self._serve(CreateTopicsResponse())),
            Route(ApiKey.DESCRIBE_QUORUM, self._serve(DescribeQuorumResponse())),
        )
        served = with_envelope(Routes(Listener.CONTROLLER, routes))
        self.server = Server(ports.network, ports.clock, [ListenerSpec("CONTROLLER", AT, served)])
        self._cut = cut

    def _serve(self, reply: Message) -> Any:
        async def handle(caller: Caller, request: Message, version: int) -> Message:
            self.seen.append(caller.request)
            if len(self.seen) == 1:
                self._cut()
            return reply

        return handle


async def forwarded(simulation: Simulation, request: Message) -> list[RequestIdentity | None]:
    """Forward a request whose first reply is lost; return who the controller saw."""
    controllers: list[Controller] = []
    done = asyncio.Event()

    async def control(ports: Ports) -> None:
        controllers.append(
            Controller(ports, partial(simulation.network.reset, "broker", "controller"))
        )
        await controllers[0].server.run(lambda: None)

    async def broke(ports: Ports) -> None:
        channel = ControllerChannel(ports.network, lambda: AT, "broker")
        forwarder = Forwarder(channel, 20_000, ports.random)
        await forwarder.forward_message(BROKER, request, 20_000)
        done.set()

    simulation.host("controller").start(control)
    simulation.host("broker").start(broke)
    await done.wait()
    return controllers[0].seen


def play(request: Message) -> list[RequestIdentity | None]:
    simulation = Simulation(1)
    found: list[RequestIdentity | None] = []

    async def run() -> None:
        found.extend(await forwarded(simulation, request))

    simulation.run(run)
    return found


def test_second_attempt_has_the_id_of_the_first_and_says_so() -> None:
    first, *others = play(CreateTopicsRequest())
    assert first is not None
    assert not first.is_resent
    assert others
    assert all(each == RequestIdentity(first.id, is_resent=True) for each in others)


def test_requests_that_only_read_have_no_id() -> None:
    seen = play(DescribeQuorumRequest())
    assert len(seen) > 1
    assert set(seen) == {None}


class RefusingQuorum:
    """Refuses each change of the voters, of which node 5 is one."""

    def __init__(self, error: ErrorCode) -> None:
        self._error = error

    async def request(self, request: object) -> VoterChangeReply:
        return VoterChangeReply(self._error, LeaderHint(LeaderEpoch(1), None))

    def describe(self) -> Any:
        class View:
            voters = VoterSet((Voter(ReplicaKey(NodeId(5), DIRECTORY)),))

        return View()


ADD, REMOVE = AddRaftVoterRequest, RemoveRaftVoterRequest
DUPLICATE, MISSING = ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND


@pytest.mark.parametrize(
    ("request_", "error", "is_resent", "reply"),
    [
        (ADD(voter_id=5, voter_directory_id=DIRECTORY), DUPLICATE, True, ErrorCode.NONE),
        (ADD(voter_id=5, voter_directory_id=DIRECTORY), DUPLICATE, False, DUPLICATE),
        (ADD(voter_id=5, voter_directory_id=Uuid(bytes(16))), DUPLICATE, True, DUPLICATE),
        (REMOVE(voter_id=7), MISSING, True, ErrorCode.NONE),
        (REMOVE(voter_id=7), MISSING, False, MISSING),
    ],
)
def test_repeated_voter_change_succeeds_if_the_voters_are_as_requested(
    request_: Any, error: ErrorCode, is_resent: bool, reply: ErrorCode
) -> None:
    quorum: Any = RefusingQuorum(error)
    handlers = RaftHandlers(quorum, "CONTROLLER")
    handle: Any = handlers.on_add_voter if isinstance(request_, ADD) else handlers.on_remove_voter
    identity = RequestIdentity(Uuid(b"0123456789abcdef"), is_resent)
    caller = Caller("User:a", None, Address("192.0.2.1", 9), "CONTROLLER", request=identity)
    assert asyncio.run(handle(caller, request_, 0)).error_code == reply
