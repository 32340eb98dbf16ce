"""Sessions of ShareFetch and ShareAcknowledge."""

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import Millis, TopicIdPartition, Uuid
from ottla.sharing.sessions import EPOCH_MAX, Opened, SessionKey, SessionRequest, Sessions, named

TOPIC = Uuid(bytes(range(16)))
KEY = SessionKey("g", "m1")
P0, P1, P2 = (TopicIdPartition(TOPIC, index) for index in range(3))
NOW = Millis(1000)


def opened(sessions: Sessions, asked: SessionRequest, now: Millis = NOW) -> Opened | ErrorCode:
    """Return the result of a fetch without the identity of its session."""
    found = sessions.fetch(asked, now)
    return found if isinstance(found, ErrorCode) else found._replace(session=None)


def begun(*places: TopicIdPartition, sessions_max: int = 10) -> Sessions:
    sessions = Sessions(sessions_max, idle_ms=100)
    assert opened(sessions, SessionRequest(KEY, 0, places)) == Opened(places)
    return sessions


def test_session_remembers_its_partitions() -> None:
    sessions = begun(P0, P1)

    found = sessions.fetch(SessionRequest(KEY, 1, (P2,), (P0,)), NOW)

    assert isinstance(found, Opened)
    assert sorted(found.places) == [P1, P2]


def test_each_turn_begins_with_another_partition() -> None:
    sessions = begun(P0, P1, P2)

    firsts = []
    for epoch in (1, 2, 3):
        found = sessions.fetch(SessionRequest(KEY, epoch, ()), NOW)
        assert isinstance(found, Opened)
        firsts.append(found.places[0])

    assert sorted(firsts) == [P0, P1, P2]


def test_the_epoch_has_to_be_the_next() -> None:
    sessions = begun(P0)

    assert sessions.fetch(SessionRequest(KEY, 2, ()), NOW) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert opened(sessions, SessionRequest(KEY, 1, ())) == Opened((P0,))
    assert sessions.fetch(SessionRequest(KEY, 1, ()), NOW) is ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_rejected_session_epoch_changes_nothing() -> None:
    sessions = begun(P0)

    sessions.fetch(SessionRequest(KEY, 7, (P1,), (P0,)), NOW)

    assert opened(sessions, SessionRequest(KEY, 1, ())) == Opened((P0,))


def test_request_without_a_session_is_rejected() -> None:
    sessions = Sessions(10, 100)

    for epoch in (1, -1):
        found = sessions.fetch(SessionRequest(KEY, epoch, ()), NOW)
        assert found is ErrorCode.SHARE_SESSION_NOT_FOUND
        assert sessions.acknowledge(KEY, epoch, NOW) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_first_fetch_acknowledges_nothing() -> None:
    sessions = begun(P0)

    code = sessions.fetch(SessionRequest(KEY, 0, (P1,), has_acks=True), NOW)

    assert code is ErrorCode.INVALID_REQUEST
    assert opened(sessions, SessionRequest(KEY, 1, ())) == Opened((P0,))


def test_new_session_replaces_the_old_one() -> None:
    sessions = begun(P0)

    assert opened(sessions, SessionRequest(KEY, 0, (P1,))) == Opened((P1,))
    assert len(sessions) == 1


def test_an_acknowledgement_takes_the_next_epoch_and_begins_nothing() -> None:
    sessions = begun(P0)

    assert sessions.acknowledge(KEY, 0, NOW) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert sessions.acknowledge(KEY, 1, NOW) is ErrorCode.NONE
    assert opened(sessions, SessionRequest(KEY, 2, ())) == Opened((P0,))


def test_a_last_request_leaves_the_session_to_be_ended() -> None:
    sessions = begun(P0, P1)

    assert opened(sessions, SessionRequest(KEY, -1, ())) == Opened((), is_final=True)
    assert sessions.acknowledge(KEY, -1, NOW) is ErrorCode.NONE
    sessions.end(KEY)
    sessions.end(KEY)
    assert not len(sessions)


def test_a_session_is_open_until_it_ends_or_is_replaced() -> None:
    sessions = begun(P0)
    first = sessions.fetch(SessionRequest(KEY, 1, ()), NOW)
    assert isinstance(first, Opened)
    assert sessions.is_open(KEY, first.session)

    second = sessions.fetch(SessionRequest(KEY, 0, (P0,)), NOW)

    assert isinstance(second, Opened)
    assert not sessions.is_open(KEY, first.session)
    assert sessions.is_open(KEY, second.session)
    sessions.end(KEY)
    assert not sessions.is_open(KEY, second.session)


def test_the_largest_epoch_is_followed_by_one() -> None:
    sessions = begun(P0)
    sessions._sessions[KEY].epoch = EPOCH_MAX  # 2**31 requests take too long

    assert sessions.acknowledge(KEY, EPOCH_MAX, NOW) is ErrorCode.NONE
    assert sessions.acknowledge(KEY, 1, NOW) is ErrorCode.NONE


def test_session_limit_is_enforced() -> None:
    sessions = begun(P0, sessions_max=1)
    other = SessionRequest(SessionKey("g", "m2"), 0, (P0,))

    assert sessions.fetch(other, NOW) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert opened(sessions, SessionRequest(KEY, 0, (P0,))) == Opened((P0,))


def test_idle_session_is_evicted_when_a_slot_is_needed() -> None:
    sessions = begun(P0, sessions_max=1)
    other = SessionRequest(SessionKey("g", "m2"), 0, (P0,))

    assert sessions.fetch(other, Millis(NOW + 100)) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert opened(sessions, other, Millis(NOW + 101)) == Opened((P0,))
    assert sessions.keys() == (SessionKey("g", "m2"),)


def test_a_partition_named_twice_counts_once() -> None:
    assert named([(TOPIC, (1, 0)), (TOPIC, (1,))]) == (P1, P0)
