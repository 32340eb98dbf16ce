"""Requests with a key in common go on in the order of their arrival."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.api.produce.append_order import AppendOrder, Ticket

KEYS = st.sets(st.sampled_from("abcd"), min_size=1)


def test_requests_without_a_common_key_do_not_wait() -> None:
    order = AppendOrder()
    first, second = order.enter("ab"), order.enter("cd")
    assert first.is_first
    assert second.is_first


def test_a_request_waits_until_all_before_it_left() -> None:
    order = AppendOrder()
    first, second, third = order.enter("a"), order.enter("b"), order.enter("ab")
    woken: list[str] = []
    third.when_first(lambda: woken.append("third"))
    order.leave(second)
    assert not third.is_first
    assert not woken
    order.leave(first)
    assert third.is_first
    assert woken == ["third"]
    order.leave(third)
    assert not order


def test_a_request_with_a_key_twice_is_queued_once() -> None:
    order = AppendOrder()
    order.leave(order.enter("aa"))
    assert not order


def test_a_request_that_gives_up_in_the_middle_lets_nobody_overtake() -> None:
    order = AppendOrder()
    first, second, third = (order.enter("a") for _ in range(3))
    order.leave(second)
    assert not third.is_first
    order.leave(first)
    assert third.is_first


def test_a_note_reaches_the_request_directly_behind() -> None:
    order = AppendOrder()
    first, second, third = (order.enter("a") for _ in range(3))
    first.note = "refused"
    order.leave(first)
    assert second.notes == ["refused"]
    order.leave(second)
    assert third.notes == []


@given(st.lists(KEYS, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_every_request_gets_its_turn_in_arrival_order_of_each_key(
    wanted: list[set[str]],
    chosen: "st.Random",  # type: ignore[name-defined]
) -> None:
    order = AppendOrder()
    waiting: list[Ticket] = [order.enter(sorted(keys)) for keys in wanted]
    done: list[Ticket] = []
    arrival = list(waiting)
    while waiting:
        ready = [ticket for ticket in waiting if ticket.is_first]
        assert ready, "nobody waits for ever"
        ticket = chosen.choice(ready)
        waiting.remove(ticket)
        done.append(ticket)
        order.leave(ticket)
    for key in "abcd":
        had = [ticket for ticket in done if key in ticket.keys]
        assert had == [ticket for ticket in arrival if key in ticket.keys]
    assert not order
