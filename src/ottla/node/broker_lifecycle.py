"""A broker's life with its controller: register, catch up, be unfenced, be told to stop.

    register --accepted--> fenced --caught up, node ready--> unfenced --want shut down--> drained

Every heartbeat says how far this broker has read the metadata, which of its directories are
lost, and what it wants. A controller that does not know the broker any more, or knows it in
another incarnation, makes it register again.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from ottla.client.controller_client import ControllerClient
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from ottla.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import Offset, Uuid

log = logging.getLogger(__name__)

NOT_REGISTERED: Final = -1
# A controller that refuses is asked again; how soon, milliseconds.
RETRY_MS: Final = 200


class Timing(msgspec.Struct, frozen=True):
    """Milliseconds: between heartbeats, and until one of them has failed."""

    heartbeat_ms: int = 2_000
    request_timeout_ms: int = 4_500


class RegistrationRefused(Exception):
    """The controller will never have this broker: another has its id, or it is of another
    cluster, or it cannot run the cluster's features.
    """


_FINAL: Final = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION})
_REGISTER_AGAIN: Final = frozenset(
    {ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED}
)


class BrokerLifecycle:
    """`Service`: ready once the controller has accepted this broker and it has caught up.

    ``metadata_offset`` says how far the metadata is read, ``offline_dirs`` which directories
    are lost.
    """

    name = "broker-lifecycle"

    def __init__(
        self,
        controller: ControllerClient,
        registration: BrokerRegistrationRequest,
        metadata_offset: Callable[[], Offset],
        offline_dirs: Callable[[], list[Uuid]],
        timing: Timing | None = None,
    ) -> None:
        self._controller = controller
        self._registration = registration
        self._metadata_offset = metadata_offset
        self._offline_dirs = offline_dirs
        self._timing = timing or Timing()
        self._wake = asyncio.Event()
        self._may_unfence = False
        self._wants_shutdown = False
        self.epoch = NOT_REGISTERED
        self.is_fenced = True
        self.should_shut_down = asyncio.Event()

    def become_ready(self) -> None:
        """Ask to be unfenced from now on: clients can be served."""
        self._may_unfence = True
        self._wake.set()

    def report_soon(self) -> None:
        """Send the next heartbeat at once: a directory was lost."""
        self._wake.set()

    def want_shutdown(self) -> None:
        """Ask for leave; `should_shut_down` is set once it is given. Asking twice is fine."""
        self._wants_shutdown = True
        self._wake.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Register and send heartbeats until cancelled.

        Raises:
            RegistrationRefused: the controller will never accept this broker.
        """
        is_ready = False
        while True:
            self._wake.clear()
            if self.epoch == NOT_REGISTERED and not await self._register():
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            is_caught_up = await self._beat()
            if is_caught_up and not is_ready:
                is_ready = True
                log.info("broker registered and caught up epoch=%d", self.epoch)
                ready()
            await self._pause(is_ready)

    async def _pause(self, is_ready: bool) -> None:
        """Wait until the next heartbeat is due; less while the node still starts."""
        wait_ms = (
            self._timing.heartbeat_ms if is_ready else min(RETRY_MS, self._timing.heartbeat_ms)
        )
        if self._may_unfence and self.is_fenced:
            wait_ms = min(wait_ms, RETRY_MS)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _ask(self, request: Message) -> Message | None:
        try:
            return await self._controller.ask(request, self._timing.request_timeout_ms)
        except (Fault, OSError) as error:
            log.info("active controller not reached reason=%s", error)
            return None

    async def _register(self) -> bool:
        response = await self._ask(self._registration)
        if response is None:
            return False
        assert isinstance(response, BrokerRegistrationResponse)
        code = ErrorCode(response.error_code)
        if code in _FINAL:
            raise RegistrationRefused(f"registration: {code.name}")
        if code is not ErrorCode.NONE:
            log.warning("broker registration refused error=%s; trying again", code.name)
            return False
        self.epoch = response.broker_epoch
        log.info("broker registered epoch=%d", self.epoch)
        return True

    async def _beat(self) -> bool:
        """Send one heartbeat; say whether the broker has caught up."""
        response = await self._ask(
            BrokerHeartbeatRequest(
                broker_id=self._registration.broker_id,
                broker_epoch=self.epoch,
                current_metadata_offset=self._metadata_offset(),
                want_fence=not self._may_unfence,
                want_shut_down=self._wants_shutdown,
                offline_log_dirs=self._offline_dirs(),
            )
        )
        if response is None:
            return False
        assert isinstance(response, BrokerHeartbeatResponse)
        code = ErrorCode(response.error_code)
        if code in _REGISTER_AGAIN:
            log.warning("broker is not known any more error=%s; registering again", code.name)
            self._registration = replace(self._registration, previous_broker_epoch=self.epoch)
            self.epoch = NOT_REGISTERED
            return False
        if code is not ErrorCode.NONE:
            log.warning("broker heartbeat refused error=%s", code.name)
            return False
        if self.is_fenced != response.is_fenced:
            log.info("broker fenced=%s epoch=%d", response.is_fenced, self.epoch)
        self.is_fenced = response.is_fenced
        if response.should_shut_down:
            self.should_shut_down.set()
        return response.is_caught_up


class Unfencing(msgspec.Struct, frozen=True):
    """Service: says that the node serves clients, behind everything that has to be up for it."""

    lifecycle: BrokerLifecycle
    name: str = "unfencing"

    async def run(self, ready: Callable[[], None]) -> None:
        """Tell, and stay."""
        self.lifecycle.become_ready()
        ready()
        await asyncio.get_running_loop().create_future()
