"""A simulated admin client: changes topics through any controller that accepts its requests.

One change at a time. It stays with a controller that answers, even one that lost its leadership,
and moves on when rejected. Unanswered requests are repeated where that is safe (a creation), and
otherwise dropped: a lost request may arrive late. A `ForwardedClient` does the same through the
code that forwards requests in a broker.
"""

import asyncio
from collections.abc import Callable

from ottla.api.cluster.envelope import Forwarder
from ottla.api.surface.routes import ANONYMOUS, Caller
from ottla.client.connection import Connection, Options
from ottla.node.controller.controller_channel import ControllerChannel
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import ZERO_UUID, Uuid
from ottla.runtime.ports import Address
from simulation.controller_watch import CONFIG, ControllerWatch
from simulation.ledger import InvariantBroken
from simulation.simulation import Ports

IMPATIENT = Options(connect_timeout_ms=300)
REQUEST_TIMEOUT_MS = 1500
TOPIC = 2  # a resource type
SHARED_S = 0.4  # for this long all clients that want a shared topic use the same one
OPEN = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION)


class ControllerClient:
    """Change its own topics, and sometimes race with others for a shared one."""

    def __init__(
        self, name: str, ports: Ports, watch: ControllerWatch, pick: Callable[[], Address]
    ) -> None:
        self._name = name
        self._ports = ports
        self._watch = watch
        self._pick = pick
        self._connection: Connection | None = None
        self._number = 0
        self._doubtful: str | None = None
        self._own: list[str] = []

    async def run(self) -> None:
        """Run until the watch ends the clients."""
        random = self._ports.random
        while not self._watch.is_over:
            await asyncio.sleep(0.05 + 0.2 * random.fraction())
            if self._doubtful is not None:
                await self._create(self._doubtful)
            elif random.below(3) == 0:
                shared = int(asyncio.get_running_loop().time() / SHARED_S)
                await self._create(f"shared-{shared}")
            elif len(self._own) < 2 or random.below(3) == 0:
                self._number += 1
                await self._create(f"{self._name}-{self._number}")
            elif random.below(3) == 0:
                await self._delete(self._own.pop(0))
            else:
                await self._configure(self._own[random.below(len(self._own))])

    # -- changes ---------------------------------------------------------------

    async def _create(self, topic: str) -> None:
        self._watch.wanted(topic)
        topics = [CreatableTopic(topic, num_partitions=1, replication_factor=1)]
        response = await self._ask(CreateTopicsRequest(topics))
        was_doubtful = self._doubtful is not None
        error, topic_id = ErrorCode.NETWORK_EXCEPTION, ZERO_UUID
        if isinstance(response, CreateTopicsResponse):
            error = ErrorCode(response.topics[0].error_code)
            topic_id = Uuid(response.topics[0].topic_id)
        is_own = not topic.startswith("shared")
        self._doubtful = None
        match error:
            case ErrorCode.NONE:
                self._watch.created(topic, topic_id)
                self._own += [topic] * is_own
            case ErrorCode.TOPIC_ALREADY_EXISTS:
                if is_own and not was_doubtful:
                    raise InvariantBroken(f"{topic} exists before {self._name} created it")
                self._watch.found(topic)
                self._own += [topic] * is_own
            case _:
                self._doubtful = topic if is_own else None
                await self._left_open(error)

    async def _configure(self, topic: str) -> None:
        self._number += 1
        value = str(1000 + self._number)
        is_calm = self._watch.is_calm
        known = self._watch.topics[topic]
        resource = AlterConfigsResource(TOPIC, topic, [AlterableConfig(CONFIG, 0, value)])
        response = await self._ask(IncrementalAlterConfigsRequest([resource]))
        error = ErrorCode.NETWORK_EXCEPTION
        if isinstance(response, IncrementalAlterConfigsResponse):
            error = ErrorCode(response.responses[0].error_code)
        match error:
            case ErrorCode.NONE:
                self._watch.configured(topic, value)
            case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._watch.not_found(topic, is_calm=is_calm and self._watch.is_calm)
                await self._leave()
            case _:
                # The request may still arrive: no client uses this topic from here on.
                known.values = {*known.values, value}
                self._own.remove(topic)
                await self._left_open(error)

    async def _delete(self, topic: str) -> None:
        is_calm = self._watch.is_calm
        response = await self._ask(DeleteTopicsRequest(topics=[DeleteTopicState(topic)]))
        error = ErrorCode.NETWORK_EXCEPTION
        if isinstance(response, DeleteTopicsResponse):
            error = ErrorCode(response.responses[0].error_code)
        match error:
            case ErrorCode.NONE:
                self._watch.deleted(topic)
            case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                if topic not in self._watch.newest.topics.ids:
                    raise InvariantBroken(f"{topic} is gone before {self._name} deleted it")
                self._watch.not_found(topic, is_calm=is_calm and self._watch.is_calm)
                await self._leave()
            case _:
                self._watch.topics[topic].exists = None
                await self._left_open(error)

    async def _left_open(self, error: ErrorCode) -> None:
        if error not in OPEN:
            raise InvariantBroken(f"{self._name} was rejected without reason: {error.name}")
        self._watch.open += 1
        await self._leave()

    # -- the wire --------------------------------------------------------------

    async def _ask(self, request: Message) -> Message | None:
        """Return the response; None if there was none."""
        try:
            if self._connection is None:
                self._connection = await Connection.open(
                    self._ports.network, self._pick(), options=IMPATIENT
                )
            return await self._connection.send(request, timeout_ms=REQUEST_TIMEOUT_MS)
        except (OSError, Fault):
            return None

    async def _leave(self) -> None:
        """Use another controller next time."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


class ForwardedClient(ControllerClient):
    """The same, behind a broker: requests are forwarded, and repeated when unanswered.

    No other client uses its own topics, so a reply that a topic exists before it was created, or is
    gone before it was deleted, belongs to an earlier attempt of the same request.
    """

    def __init__(
        self, name: str, ports: Ports, watch: ControllerWatch, pick: Callable[[], Address]
    ) -> None:
        super().__init__(name, ports, watch, pick)
        channel = ControllerChannel(ports.network, pick, name, IMPATIENT)
        self._forwarder = Forwarder(channel, REQUEST_TIMEOUT_MS, ports.random)
        self._caller = Caller(ANONYMOUS, name, Address("localhost", 0), "")

    async def _ask(self, request: Message) -> Message | None:
        """Return the response; None if there was none."""
        try:
            return await self._forwarder.forward_message(self._caller, request, REQUEST_TIMEOUT_MS)
        except (OSError, Fault):
            return None
