"""All events in order, with a running hash: two runs of a seed agree, or something leaked in."""

import hashlib
from collections import deque
from collections.abc import Callable

# Lines kept for a failure report; the hash covers all.
LINES_KEPT = 400


class Journal:
    """Every effect of a simulation as one line: time, host, kind, detail."""

    def __init__(self, time: Callable[[], float]) -> None:
        self.count = 0
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._time = time
        self._hash = hashlib.blake2b(digest_size=16)

    def note(self, host: str, kind: str, detail: str = "") -> None:
        """Add one line."""
        line = f"{self._time():.6f} {host} {kind} {detail}"
        self._hash.update(line.encode() + b"\n")
        self.lines.append(line)
        self.count += 1

    def hash(self) -> str:
        """Return the hash over every line so far, in hexadecimal."""
        return self._hash.copy().hexdigest()
