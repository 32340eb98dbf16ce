"""What the simulations share."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def quiet() -> Iterator[None]:
    """Log nothing: what the test injects on purpose would be logged as errors."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
