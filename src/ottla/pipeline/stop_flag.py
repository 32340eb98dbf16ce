"""A request to stop that a signal handler may make."""

import os
import select


class StopFlag:
    """Whether to stop.

    A signal handler runs in the middle of whatever the main thread does, so setting the flag takes
    no lock: with `threading.Event` the handler would wait for ever if it interrupts `wait`.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._read_end, self._write_end = os.pipe()

    def set(self) -> None:
        """Ask to stop. Ends every wait."""
        if not self._is_set:
            self._is_set = True
            os.write(self._write_end, b"\0")

    def is_set(self) -> bool:
        """Return whether to stop."""
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Wait at most this long; return True as soon as somebody asks to stop."""
        select.select([self._read_end], [], [], seconds)
        return self._is_set

    def close(self) -> None:
        """Release the pipe; neither `set` nor `wait` may be called after this."""
        os.close(self._read_end)
        os.close(self._write_end)
