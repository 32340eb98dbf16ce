"""Lines of the nodes' output, marked with the node that wrote them. Pure."""

from typing import Final

LINE_BYTES_MAX: Final = 65_536
"""A longer line is passed on in parts."""


class LineSplitter:
    """Cuts a stream of bytes into lines, without their ends."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now; what is too long for one line is cut."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > LINE_BYTES_MAX:
            lines.append(self._rest[:LINE_BYTES_MAX])
            self._rest = self._rest[LINE_BYTES_MAX:]
        return lines

    def end(self) -> list[bytes]:
        """Return the last line if it has no end."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


def marked(node_id: int, line: bytes) -> bytes:
    """Return a line of the log with the id of its node: a field of JSON, or a prefix."""
    if line.startswith(b'{"') and line.endswith(b"}"):
        return b'{"node": %d, %b\n' % (node_id, line[1:])
    return b"[node %d] %b\n" % (node_id, line)
