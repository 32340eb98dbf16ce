"""The transition tables of a connection: each state allows its events and no others."""

import pytest

from ottla.server.connection_state import (
    FRAMES,
    LIFECYCLE,
    MUTE,
    ConnectionState,
    FrameEvent,
    FrameState,
    IllegalTransition,
    Lifecycle,
    LifecycleEvent,
    MuteEvent,
    MuteState,
    next_state,
)

ENDED = {Lifecycle.CLOSING, Lifecycle.CLOSED}


@pytest.mark.parametrize(
    ("table", "states", "events"),
    [
        (LIFECYCLE, Lifecycle, LifecycleEvent),
        (FRAMES, FrameState, FrameEvent),
        (MUTE, MuteState, MuteEvent),
    ],
)
def test_every_event_without_a_row_raises(table, states, events) -> None:  # type: ignore[no-untyped-def]
    for state in states:
        for event in events:
            if (state, event) in table:
                assert next_state(table, state, event) in states
            else:
                with pytest.raises(IllegalTransition, match=event.name):
                    next_state(table, state, event)


def test_every_lifecycle_but_closed_can_be_lost_and_aborted() -> None:
    for state in set(Lifecycle) - {Lifecycle.CLOSED}:
        assert LIFECYCLE[state, LifecycleEvent.LOST] is Lifecycle.CLOSED
        assert LIFECYCLE[state, LifecycleEvent.ABORT] is Lifecycle.CLOSING


def test_closed_is_final() -> None:
    assert not [row for row in LIFECYCLE if row[0] is Lifecycle.CLOSED]


def test_no_lifecycle_event_accepts_requests_again() -> None:
    serving = {Lifecycle.AUTHENTICATING, Lifecycle.OPEN}
    assert not [
        row for row, after in LIFECYCLE.items() if row[0] not in serving and after in serving
    ]


def test_a_closing_connection_never_reopens() -> None:
    assert {after for row, after in LIFECYCLE.items() if row[0] in ENDED} <= ENDED


def test_the_fast_path_needs_authentication() -> None:
    state = ConnectionState(authenticates=True)
    assert (state.accepts_requests, state.is_ready) == (True, False)
    state.advance(LifecycleEvent.AUTHENTICATED)
    assert (state.accepts_requests, state.is_ready) == (True, True)
    with pytest.raises(IllegalTransition):
        state.advance(LifecycleEvent.AUTHENTICATED)


@pytest.mark.parametrize("event", [LifecycleEvent.DRAIN, LifecycleEvent.FINAL_REPLY])
def test_a_draining_or_finishing_connection_accepts_no_requests(event: LifecycleEvent) -> None:
    state = ConnectionState(authenticates=False)
    state.advance(event)
    assert not state.accepts_requests and not state.is_ready and not state.is_ended
    state.advance(LifecycleEvent.ALL_SENT)
    assert state.is_ended


def test_a_final_reply_during_a_drain_is_still_final() -> None:
    state = ConnectionState(authenticates=False)
    state.advance(LifecycleEvent.DRAIN)
    state.advance(LifecycleEvent.FINAL_REPLY)
    assert state.lifecycle is Lifecycle.FINISHING


def test_a_queued_connection_is_not_ready_until_it_runs() -> None:
    state = ConnectionState(authenticates=False)
    state.on_frames(FrameEvent.ENQUEUE)
    assert state.accepts_requests and not state.is_ready
    with pytest.raises(IllegalTransition):
        state.on_frames(FrameEvent.ENQUEUE)
    state.on_frames(FrameEvent.RUN)
    assert state.is_ready


def test_requests_wait_while_a_large_one_is_decoded() -> None:
    state = ConnectionState(authenticates=False)
    state.on_frames(FrameEvent.DECODE)
    assert not state.accepts_requests
    state.on_frames(FrameEvent.DECODED)
    assert state.accepts_requests


def test_requests_wait_while_an_earlier_one_holds_them() -> None:
    state = ConnectionState(authenticates=False)
    state.on_frames(FrameEvent.HOLD)
    assert not state.accepts_requests and not state.is_ready
    state.on_frames(FrameEvent.RELEASE)
    assert state.accepts_requests and state.is_ready


def test_a_connection_without_memory_waits_until_it_is_freed() -> None:
    state = ConnectionState(authenticates=False)
    state.on_frames(FrameEvent.MEMORY_DENIED)
    assert not state.is_ready
    state.on_frames(FrameEvent.MEMORY_FREED)
    assert state.is_ready
    state.on_frames(FrameEvent.MEMORY_FREED)
    assert state.is_ready, "memory is offered again until it is taken"


def test_a_throttled_connection_is_muted_until_the_later_deadline() -> None:
    state = ConnectionState(authenticates=False)
    assert state.throttle(10.0)
    assert not state.accepts_requests and not state.is_ready
    assert not state.throttle(9.0), "an earlier deadline changes nothing"
    assert state.muted_until == 10.0
    assert state.throttle(11.0)
    assert state.muted_until == 11.0
    state.unmute()
    assert state.is_ready and state.muted_until is None
    with pytest.raises(IllegalTransition):
        state.unmute()


def test_unmuting_does_not_end_a_decode() -> None:
    state = ConnectionState(authenticates=False)
    state.on_frames(FrameEvent.DECODE)
    state.throttle(1.0)
    state.unmute()
    assert not state.accepts_requests
    state.on_frames(FrameEvent.DECODED)
    assert state.is_ready
