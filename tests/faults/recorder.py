"""A proxy between clients and a node that records request frames by API and version."""

import socket
import struct
import threading
from collections import defaultdict
from contextlib import suppress

from tests.patience import SECONDS_MAX

CHUNK_BYTES = 256 * 1024
KEPT_MAX = 8  # frames of one API and version


class Recorder:
    """Listens on loopback; the node advertises its port."""

    def __init__(self) -> None:
        self.frames: dict[tuple[int, int], list[bytes]] = defaultdict(list)
        self.target: tuple[str, int] | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(SECONDS_MAX)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                assert self.target is not None
                far = socket.create_connection(self.target)
                self._sockets += [near, far]
                for source, sink, received in ((near, far, bytearray()), (far, near, None)):
                    thread = threading.Thread(target=self._carry, args=(source, sink, received))
                    self._threads.append(thread)
                    thread.start()

    def _carry(
        self, source: socket.socket, sink: socket.socket, received: bytearray | None
    ) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                if received is not None:
                    received += data
                    self._cut(received)
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def _cut(self, received: bytearray) -> None:
        """Remove complete frames from the front."""
        while len(received) >= 8:
            size, key, version = struct.unpack_from(">ihh", received)
            if len(received) < 4 + size:
                return
            kept = self.frames[key, version]
            if len(kept) < KEPT_MAX:
                kept.append(bytes(received[4 : 4 + size]))
            del received[: 4 + size]
