"""The times without a committed micro-batch, cut by what happened in them."""

from commit_gaps import Event, describe, gaps, parse_phases


def test_gap_is_cut_by_its_events_in_order_of_time():
    events = [Event(3.0, "start"), Event(1.0, "commit"), Event(2.0, "kill of driver")]
    events += [Event(10.0, "session"), Event(12.0, "commit"), Event(0.5, "start")]
    first, second = gaps(events)
    assert first.parts == (("commit", 0.5),)
    assert second.parts == (
        ("kill of driver", 1.0),
        ("start", 1.0),
        ("session", 7.0),
        ("commit", 2.0),
    )
    assert second.seconds == 11.0
    assert next(describe([first, second])).startswith("gap of 11.0 s: until kill of driver 1.0")


def test_torn_phases_of_a_log_are_skipped():
    assert parse_phases("x\nPHASE session 12.5\nPHASE query\nPHASE a b") == [Event(12.5, "session")]
