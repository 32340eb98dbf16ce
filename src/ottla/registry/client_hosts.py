"""Where a forwarded request comes from: the client's address, named by the node that forwards it.

ACLs with hosts decide by the address of a connection. The leader of ``_schemas`` sees that of the
forwarding node, which therefore names the client's in `HOST_HEADER`. It is believed from an address
of a registered broker, or from a certificate that may act for the cluster (`authentication.py`);
anybody else could choose a host.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Mapping
from typing import Final

from ottla.metadata.image import Image
from ottla.protocol.types import Millis
from ottla.registry.http_call import HOST_HEADER
from ottla.runtime.ports import Clock

KEPT_MS: Final = 60_000
RESOLVED_MAX: Final = 10_000
RESOLVE_S: Final = 5.0


def named_host(headers: Mapping[str, str]) -> str | None:
    """Return the address of the client that a forwarding node names; None for what is none."""
    text = headers.get(HOST_HEADER, "")
    return None if _address(text) is None else text


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


class NodeAddresses:
    """The addresses of the cluster's brokers; names are resolved, and kept for a minute."""

    def __init__(self, image: Callable[[], Image], clock: Clock) -> None:
        self._image = image
        self._clock = clock
        self._resolved: dict[str, tuple[Millis, frozenset[object]]] = {}

    async def has(self, host: str) -> bool:
        """Say whether a connection from an address may be one of a broker."""
        address = _address(host)
        names = {
            endpoint.host
            for broker in self._image().cluster.brokers.values()
            for endpoint in broker.listeners.values()
        }
        if address is None:
            return False
        if any(_address(name) == address for name in names):
            return True
        for name in names:
            if _address(name) is None and address in await self._resolve(name):
                return True
        return False

    async def _resolve(self, name: str) -> frozenset[object]:
        now = self._clock.monotonic()
        kept = self._resolved.get(name)
        if kept is not None and kept[0] > now:
            return kept[1]
        try:
            async with asyncio.timeout(RESOLVE_S):
                rows = await asyncio.get_running_loop().getaddrinfo(
                    name, None, type=socket.SOCK_STREAM
                )
        except (OSError, UnicodeError):
            rows = []
        addresses = frozenset(_address(str(row[4][0])) for row in rows)
        if len(self._resolved) >= RESOLVED_MAX:
            self._resolved.clear()
        self._resolved[name] = (Millis(now + KEPT_MS), addresses)
        return addresses
