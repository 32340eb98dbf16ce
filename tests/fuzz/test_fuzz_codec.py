"""A short run of the fuzzer over every API, the same each time."""

import pytest
from tests.fuzz.target import Tally, run_step

from ottla.protocol.api_keys import ApiKey

STEPS = 6
SEED = 20


@pytest.mark.parametrize("key", ApiKey, ids=lambda key: key.title)
def test_mutated_frames_are_read_or_rejected(key: ApiKey) -> None:
    tally = Tally()
    for number in range(STEPS):
        run_step(SEED, key, number, tally)
    # If every input, or none, is rejected early, the fuzzer tests nothing.
    assert tally.refused > 20
    assert tally.read > 0
