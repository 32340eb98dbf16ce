"""A short run with real processes, with every fault that this machine supports."""

from dataclasses import replace

import pytest
from tests.nemesis.trial import Shape, run_trial

SHORT = Shape(rate=80.0, warm_up_s=1.0, hold_s=5.5, rest_s=0.5)
FAULTS = ["kill-leader", "rolling-restart", "isolate-leader"]


@pytest.mark.slow
def test_no_record_and_no_session_is_lost_with_sasl_ssl_on_every_listener() -> None:
    shape = replace(SHORT, security="sasl_ssl", session_ms=2000)
    outcome = run_trial(shape, ["kill-leader"], seed=1)
    assert outcome.is_good, str(outcome)
    assert outcome.acknowledged > 200 and outcome.seen >= outcome.acknowledged


@pytest.mark.slow
def test_no_record_is_lost_and_no_producer_fails_under_any_fault() -> None:
    outcome = run_trial(SHORT, FAULTS, seed=1)
    assert outcome.is_good, str(outcome)
    assert outcome.acknowledged > 500 and outcome.seen >= outcome.acknowledged
