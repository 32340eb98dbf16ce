"""Leader epochs: queries, and what truncation leaves."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.types import LeaderEpoch, Offset
from ottla.storage.log.leader_epochs import EpochEntry, LeaderEpochs


def epochs(*pairs: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(EpochEntry(LeaderEpoch(e), Offset(o)) for e, o in pairs)


def end(cache: LeaderEpochs, epoch: int, log_end: int = 100) -> tuple[int, int]:
    return cache.end_offset_for(LeaderEpoch(epoch), Offset(log_end))


def test_assigning_the_current_epoch_again_changes_nothing() -> None:
    cache = epochs((2, 10))
    assert cache.assign(LeaderEpoch(2), Offset(15)) is False
    assert cache.entries == ((2, 10),)


def test_assigning_an_earlier_start_of_the_current_epoch_moves_it() -> None:
    cache = epochs((2, 10))
    assert cache.assign(LeaderEpoch(2), Offset(8)) is True
    assert cache.entries == ((2, 8),)


def test_assigning_out_of_order_drops_what_no_longer_fits() -> None:
    cache = epochs((1, 5), (2, 10), (4, 20))
    assert cache.assign(LeaderEpoch(3), Offset(10)) is True
    assert cache.entries == ((1, 5), (3, 10))


def test_epoch_that_wrote_nothing_is_replaced_by_the_next_at_the_same_offset() -> None:
    cache = epochs((1, 5), (2, 10))
    assert cache.assign(LeaderEpoch(3), Offset(10)) is True
    assert cache.entries == ((1, 5), (3, 10))


def test_end_of_the_newest_epoch_is_the_log_end() -> None:
    assert end(epochs((1, 5), (2, 10)), 2, log_end=77) == (2, 77)


def test_end_of_an_older_epoch_is_the_start_of_the_next() -> None:
    assert end(epochs((1, 5), (2, 10), (4, 20)), 2) == (2, 20)


def test_epoch_between_two_known_ones_answers_with_the_lower() -> None:
    assert end(epochs((1, 5), (2, 10), (4, 20)), 3) == (2, 20)


def test_epoch_before_all_known_ones_ends_where_they_begin() -> None:
    assert end(epochs((5, 5), (6, 10)), 3) == (3, 5)


def test_unknown_epochs_have_an_undefined_end() -> None:
    assert end(epochs(), 0) == (-1, -1)
    assert end(epochs((1, 5)), -1) == (-1, -1)
    assert end(epochs((1, 5)), 2) == (-1, -1)


def test_truncating_from_the_end_keeps_what_starts_before() -> None:
    cache = epochs((1, 5), (2, 10), (4, 20))
    assert cache.truncate_from_end(Offset(10)) is True
    assert cache.entries == ((1, 5),)
    assert cache.truncate_from_end(Offset(10)) is False


def test_truncating_from_the_start_moves_the_epoch_that_holds_it() -> None:
    cache = epochs((1, 5), (2, 10), (4, 20))
    assert cache.truncate_from_start(Offset(12)) is True
    assert cache.entries == ((2, 12), (4, 20))
    assert cache.truncate_from_start(Offset(12)) is False


def test_truncating_from_the_start_before_everything_changes_nothing() -> None:
    cache = epochs((1, 5))
    assert cache.truncate_from_start(Offset(3)) is False
    assert cache.entries == ((1, 5),)


def test_epoch_of_an_offset() -> None:
    cache = epochs((1, 5), (4, 20))
    assert [cache.epoch_for_offset(Offset(o)) for o in (4, 5, 19, 20, 99)] == [None, 1, 1, 4, 4]


steps = st.lists(
    st.tuples(
        st.sampled_from(["assign", "end", "start"]),
        st.integers(min_value=0, max_value=4),
        st.integers(min_value=0, max_value=6),
    ),
    max_size=12,
)


@given(steps)
def test_epochs_and_offsets_always_grow(changes: list[tuple[str, int, int]]) -> None:
    cache = LeaderEpochs()
    for kind, epoch, offset in changes:
        before = cache.entries
        if kind == "assign":
            changed = cache.assign(LeaderEpoch(epoch), Offset(offset))
        elif kind == "end":
            changed = cache.truncate_from_end(Offset(offset))
        else:
            changed = cache.truncate_from_start(Offset(offset))
        assert changed == (cache.entries != before)
        pairs = list(zip(cache.entries, cache.entries[1:], strict=False))
        assert all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairs)


@given(st.lists(st.integers(min_value=0, max_value=3), min_size=1, max_size=20))
def test_answers_agree_with_a_record_by_record_history(jumps: list[int]) -> None:
    """``written[o]`` is the epoch that wrote offset ``o``: the cache must agree."""
    written: list[int] = []
    cache, epoch = LeaderEpochs(), 0
    for jump in jumps:
        epoch += jump
        cache.assign(LeaderEpoch(epoch), Offset(len(written)))
        written.append(epoch)
    for offset, wrote in enumerate(written):
        assert cache.epoch_for_offset(Offset(offset)) == wrote
    for asked in range(written[0], epoch + 1):
        at_or_below = [o for o, wrote in enumerate(written) if wrote <= asked]
        found, end_offset = cache.end_offset_for(LeaderEpoch(asked), Offset(len(written)))
        assert (found, end_offset) == (written[at_or_below[-1]], at_or_below[-1] + 1)
