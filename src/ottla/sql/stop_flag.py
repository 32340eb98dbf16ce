"""A request to stop that a signal handler may make."""

import select
import socket


class StopFlag:
    """Whether to stop.

    A signal handler runs in the middle of whatever the main thread does, so setting the flag takes
    no lock: with `threading.Event` the handler would wait for ever if it interrupts `wait`.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._read_end, self._write_end = socket.socketpair()  # Windows waits for sockets only

    def set(self) -> None:
        """Ask to stop. Ends every wait."""
        if not self._is_set:
            self._is_set = True
            self._write_end.send(b"\0")

    def is_set(self) -> bool:
        """Return whether to stop."""
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Wait at most this long; return True as soon as somebody asks to stop."""
        select.select([self._read_end], [], [], seconds)
        return self._is_set

    def close(self) -> None:
        """Release the sockets; neither `set` nor `wait` may be called after this."""
        self._read_end.close()
        self._write_end.close()
