"""A broker's life with its controller, against a controller that says what a test wants."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.metadata.registrations import is_same_directory
from ottla.node.broker.broker_lifecycle import (
    NOT_REGISTERED,
    BrokerLifecycle,
    RegistrationRefused,
    Timing,
    Unfencing,
    refusal_text,
)
from ottla.node.broker.incarnation import load_incarnation
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from ottla.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import Offset, Uuid
from ottla.runtime.disk import RealDisk
from ottla.runtime.randomness import SystemRandom
from simulation.loop import run_simulated


class Scripted:
    """A controller that registers at epoch 7, 8, ...; what it refuses is set by the test."""

    def __init__(self) -> None:
        self.registrations: list[BrokerRegistrationRequest] = []
        self.beats: list[BrokerHeartbeatRequest] = []
        self.refuse: list[ErrorCode | Exception] = []
        self.beat_errors: list[ErrorCode] = []
        self.epoch = 6
        self.is_gone_allowed = False

    async def ask(self, request: Message, timeout_ms: int) -> Message:
        await asyncio.sleep(0.001)
        if isinstance(request, BrokerRegistrationRequest):
            return self._register(request)
        assert isinstance(request, BrokerHeartbeatRequest)
        self.beats.append(request)
        if self.beat_errors:
            return BrokerHeartbeatResponse(error_code=self.beat_errors.pop(0))
        return BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= self.epoch,
            is_fenced=request.want_fence,
            should_shut_down=request.want_shut_down and self.is_gone_allowed,
        )

    def _register(self, request: BrokerRegistrationRequest) -> Message:
        self.registrations.append(request)
        if self.refuse:
            refusal = self.refuse.pop(0)
            if isinstance(refusal, Exception):
                raise refusal
            return BrokerRegistrationResponse(error_code=refusal)
        self.epoch += 1
        return BrokerRegistrationResponse(broker_epoch=self.epoch)


class BrokerHarness:
    def __init__(self) -> None:
        self.controller = Scripted()
        self.offset = 0
        self.offline: list[Uuid] = []
        self.cordoned: list[Uuid] | None = None
        self.lifecycle = BrokerLifecycle(
            self.controller,
            BrokerRegistrationRequest(broker_id=1),
            lambda: Offset(self.offset),
            lambda: self.offline,
            Timing(heartbeat_ms=2000),
            lambda: self.cordoned,
        )
        self.ready = asyncio.Event()
        self.task = asyncio.create_task(self.lifecycle.run(self.ready.set))

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


def simulated(test: Callable[[BrokerHarness], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        async def main() -> None:
            broker = BrokerHarness()
            try:
                await test(broker)
            finally:
                await broker.end()

        run_simulated(main())

    run.__name__ = test.__name__
    return run


@simulated
async def test_lifecycle_is_ready_once_registered_and_caught_up(broker: BrokerHarness) -> None:
    await asyncio.sleep(1)
    assert broker.lifecycle.epoch == 7 and not broker.ready.is_set()
    broker.offset = 7
    await asyncio.sleep(1)
    assert broker.ready.is_set()
    assert all(beat.want_fence for beat in broker.controller.beats)


@simulated
async def test_unfencing_is_requested_once_the_node_is_ready(broker: BrokerHarness) -> None:
    broker.offset = 100
    await broker.ready.wait()
    assert broker.lifecycle.is_fenced
    task = asyncio.create_task(Unfencing(broker.lifecycle).run(lambda: None))
    await asyncio.sleep(0.1)
    assert not broker.lifecycle.is_fenced
    task.cancel()


@simulated
async def test_registration_is_retried_until_it_is_accepted(broker: BrokerHarness) -> None:
    broker.controller.refuse = [
        RequestTimedOut("nobody"),
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.NOT_CONTROLLER,
    ]
    await asyncio.sleep(5)
    assert len(broker.controller.registrations) == 4
    assert broker.lifecycle.epoch == 7


@simulated
async def test_permanently_rejected_broker_stops(broker: BrokerHarness) -> None:
    broker.controller.refuse = [ErrorCode.INCONSISTENT_CLUSTER_ID]
    await asyncio.wait([broker.task])
    with pytest.raises(RegistrationRefused):
        broker.task.result()


@simulated
async def test_rejected_broker_names_the_levels_that_it_supports(broker: BrokerHarness) -> None:
    broker.controller.refuse = [ErrorCode.UNSUPPORTED_VERSION]
    await asyncio.wait([broker.task])
    with pytest.raises(RegistrationRefused, match="finalized a feature level"):
        broker.task.result()


def test_refusal_text_names_features_and_their_levels() -> None:
    registration = BrokerRegistrationRequest(
        broker_id=3, features=[Feature("metadata.version", 7, 29), Feature("share.version", 0, 1)]
    )
    text = refusal_text(ErrorCode.UNSUPPORTED_VERSION, registration)
    assert "metadata.version 7 to 29, share.version 0 to 1" in text and "broker 3" in text


@simulated
async def test_unknown_broker_registers_again(broker: BrokerHarness) -> None:
    broker.offset = 100
    await broker.ready.wait()
    broker.controller.beat_errors = [ErrorCode.STALE_BROKER_EPOCH]
    await asyncio.sleep(5)
    assert broker.lifecycle.epoch == 8
    again = broker.controller.registrations[-1]
    assert again.previous_broker_epoch == 7
    assert broker.controller.beats[-1].broker_epoch == 8


@simulated
async def test_other_heartbeat_error_keeps_the_registration(broker: BrokerHarness) -> None:
    broker.offset = 100
    await broker.ready.wait()
    broker.controller.beat_errors = [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR]
    await asyncio.sleep(10)
    assert broker.lifecycle.epoch == 7 and len(broker.controller.registrations) == 1


@simulated
async def test_controlled_shutdown_is_requested_and_granted(broker: BrokerHarness) -> None:
    broker.offset = 100
    await broker.ready.wait()
    broker.lifecycle.become_ready()
    broker.lifecycle.want_shutdown()
    await asyncio.sleep(5)
    assert broker.controller.beats[-1].want_shut_down
    assert not broker.lifecycle.should_shut_down.is_set()
    broker.controller.is_gone_allowed = True
    await asyncio.sleep(0.3)  # not a heartbeat interval later
    assert broker.lifecycle.should_shut_down.is_set()


@simulated
async def test_heartbeats_report_failed_directories_and_keep_their_interval(
    broker: BrokerHarness,
) -> None:
    broker.offset = 100
    broker.offline = [Uuid(bytes(15) + b"\x09")]
    await broker.ready.wait()
    broker.lifecycle.become_ready()
    await asyncio.sleep(0.5)
    count = len(broker.controller.beats)
    await asyncio.sleep(10)
    assert 4 <= len(broker.controller.beats) - count <= 6
    assert broker.controller.beats[-1].offline_log_dirs == broker.offline


def test_broker_has_no_epoch_before_the_first_response() -> None:
    assert BrokerHeartbeatRequest().broker_epoch == NOT_REGISTERED


def test_incarnation_shows_its_directory_and_is_new_at_each_start(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    disk, random = RealDisk(), SystemRandom()
    first = load_incarnation(disk, str(tmp_path), random)
    second = load_incarnation(disk, str(tmp_path), random)
    assert is_same_directory(first, second)
    # A Kafka controller takes the same id for a repeated request, and keeps the broker's epoch.
    assert first != second
    (tmp_path / "incarnation_id").write_text("nonsense\n")
    replaced = load_incarnation(disk, str(tmp_path), random)
    assert not is_same_directory(replaced, first)
    assert "incarnation_id" in caplog.text
    assert is_same_directory(load_incarnation(disk, str(tmp_path), random), replaced)


@simulated
async def test_cordons_are_reported_once_the_broker_has_caught_up(broker: BrokerHarness) -> None:
    broker.cordoned = [Uuid(b"c" * 16)]
    await asyncio.sleep(1)
    assert all(beat.cordoned_log_dirs is None for beat in broker.controller.beats)
    broker.offset = 7
    await broker.ready.wait()
    broker.lifecycle.report_soon()
    await asyncio.sleep(0.1)
    assert broker.controller.beats[-1].cordoned_log_dirs == broker.cordoned
