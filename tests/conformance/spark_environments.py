"""The environments of `tools.spark_environments` for tests, which are skipped without PyPI."""

from pathlib import Path

import pytest
from tools.spark_environments import ROOT, Unavailable, environment_python, requirements_of

__all__ = ["ROOT", "python_of", "requirements_of"]


def python_of(name: str, requirements: list[str]) -> Path:
    """Return the Python of an environment; skip the test if it cannot be made."""
    try:
        return environment_python(name, requirements)
    except Unavailable as error:
        pytest.skip(str(error))
