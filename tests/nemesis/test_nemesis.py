"""A short run over real processes: what a user's cluster goes through in a bad year."""

import pytest
from tests.nemesis.trial import Shape, run_trial

SHORT = Shape(rate=80.0, warm_up_s=1.0, hold_s=5.5, rest_s=0.5)
FAULTS = ["kill-leader", "rolling-restart", "isolate-leader"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_is_lost_and_no_producer_fails_whatever_happens_to_nodes() -> None:
    verdict = run_trial(SHORT, FAULTS, seed=1)
    assert verdict.is_good, str(verdict)
    assert verdict.acknowledged > 500 and verdict.seen >= verdict.acknowledged
