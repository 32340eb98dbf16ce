"""How many seeds a simulation test runs.

``SEEDS`` in the environment chooses: unset, the few of `make test`; ``SEEDS=deep``, the many that
mutants and `make nightly` run; ``SEEDS=500``, the first 500; ``SEEDS=500:600``, these.
"""

import os
from collections.abc import Sequence


def seeds(few: int | Sequence[int], *, deep: int) -> Sequence[int]:
    """Return the seeds to run: the ``few`` by default, ``deep`` of them with ``SEEDS=deep``.

    ``few`` is a number of seeds, or the seeds that cover the most together.
    """
    match os.environ.get("SEEDS", "").split(":"):
        case [""]:
            return range(few) if isinstance(few, int) else few
        case ["deep"]:
            return range(deep)
        case [last]:
            return range(int(last))
        case [first, last]:
            return range(int(first), int(last))
    raise ValueError("SEEDS is a number, a range first:last, or deep")
