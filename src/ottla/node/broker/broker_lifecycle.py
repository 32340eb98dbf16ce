"""The lifecycle of a broker: it registers, catches up, is unfenced, and shuts down in order.

    register --accepted--> fenced --caught up, node ready--> unfenced --want shut down--> drained

Each heartbeat reports how far this broker has read the metadata, which of its directories have
failed or are cordoned, and what it requests. If the controller no longer knows the broker, or knows
another incarnation, the broker registers again.
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
# Milliseconds until a rejected registration or heartbeat is sent again.
RETRY_MS: Final = 200


class Timing(msgspec.Struct, frozen=True):
    """Milliseconds between heartbeats, and until a heartbeat has failed."""

    heartbeat_ms: int = 2_000
    request_timeout_ms: int = 4_500


class RegistrationRefused(Exception):
    """The controller rejects this broker for good: it belongs to another cluster, or does not
    support the cluster's features.
    """


_FINAL: Final = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION})
_REGISTER_AGAIN: Final = frozenset(
    {ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED}
)


def refusal_text(code: ErrorCode, registration: BrokerRegistrationRequest) -> str:
    """Return why a broker cannot join the cluster, and what to do."""
    who = f"the controller refused broker {registration.broker_id} with {code.name}"
    if code is ErrorCode.INCONSISTENT_CLUSTER_ID:
        return f"{who}: the broker was formatted for cluster {registration.cluster_id}"
    levels = ", ".join(
        f"{each.name} {each.min_supported_version} to {each.max_supported_version}"
        for each in registration.features
    )
    return (
        f"{who}: the cluster has finalized a feature level that this broker does not support. It "
        f"supports {levels}. Compare with `ottla cluster features describe`, and run a release "
        "that supports the finalized levels"
    )


class BrokerLifecycle:
    """`Service`: ready once the controller has accepted this broker and it has caught up.

    ``metadata_offset`` returns how far the metadata is read, ``offline_dirs`` the failed
    directories, ``cordoned_dirs`` the cordoned ones, None where the cluster does not record them.
    """

    name = "broker-lifecycle"

    def __init__(
        self,
        controller: ControllerClient,
        registration: BrokerRegistrationRequest,
        metadata_offset: Callable[[], Offset],
        offline_dirs: Callable[[], list[Uuid]],
        timing: Timing | None = None,
        cordoned_dirs: Callable[[], list[Uuid] | None] = lambda: None,
    ) -> None:
        self._controller = controller
        self._registration = registration
        self._metadata_offset = metadata_offset
        self._offline_dirs = offline_dirs
        self._cordoned_dirs = cordoned_dirs
        self._timing = timing or Timing()
        self._wake = asyncio.Event()
        self._may_unfence = False
        self._is_caught_up = False
        self._wants_shutdown = False
        self.epoch = NOT_REGISTERED
        self.is_fenced = True
        self.should_shut_down = asyncio.Event()

    def become_ready(self) -> None:
        """Request to be unfenced from the next heartbeat on: clients can be served."""
        self._may_unfence = True
        self._wake.set()

    def report_soon(self) -> None:
        """Send the next heartbeat at once: a directory has failed or is cordoned."""
        self._wake.set()

    def want_shutdown(self) -> None:
        """Request a controlled shutdown; `should_shut_down` is set once it is granted. May be
        repeated.
        """
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
            self._is_caught_up |= is_caught_up
            if is_caught_up and not is_ready:
                is_ready = True
                log.info("broker registered and caught up epoch=%d", self.epoch)
                ready()
            await self._pause(is_ready)

    async def _pause(self, is_ready: bool) -> None:
        """Wait until the next heartbeat is due, sooner while the node is starting or stopping."""
        wait_ms = (
            self._timing.heartbeat_ms if is_ready else min(RETRY_MS, self._timing.heartbeat_ms)
        )
        if self._wants_shutdown or (self._may_unfence and self.is_fenced):
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
            log.info("cannot reach the active controller reason=%s", error)
            return None

    async def _register(self) -> bool:
        response = await self._ask(self._registration)
        if response is None:
            return False
        assert isinstance(response, BrokerRegistrationResponse)
        code = ErrorCode(response.error_code)
        if code in _FINAL:
            raise RegistrationRefused(refusal_text(code, self._registration))
        if code is not ErrorCode.NONE:
            log.warning("broker registration rejected error=%s; trying again", code.name)
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
                # Before that this broker does not know the settings that apply to it.
                cordoned_log_dirs=self._cordoned_dirs() if self._is_caught_up else None,
            )
        )
        if response is None:
            return False
        assert isinstance(response, BrokerHeartbeatResponse)
        code = ErrorCode(response.error_code)
        if code in _REGISTER_AGAIN:
            log.warning(
                "controller no longer knows this broker error=%s; registering again", code.name
            )
            self._registration = replace(self._registration, previous_broker_epoch=self.epoch)
            self.epoch = NOT_REGISTERED
            return False
        if code is not ErrorCode.NONE:
            log.warning("broker heartbeat rejected error=%s", code.name)
            return False
        if self.is_fenced != response.is_fenced:
            log.info("broker fenced=%s epoch=%d", response.is_fenced, self.epoch)
        self.is_fenced = response.is_fenced
        if response.should_shut_down:
            self.should_shut_down.set()
        return response.is_caught_up


class Unfencing(msgspec.Struct, frozen=True):
    """Service: requests unfencing once every service before it is ready."""

    lifecycle: BrokerLifecycle
    name: str = "unfencing"

    async def run(self, ready: Callable[[], None]) -> None:
        """Request unfencing, then wait to be cancelled."""
        self.lifecycle.become_ready()
        ready()
        await asyncio.get_running_loop().create_future()
