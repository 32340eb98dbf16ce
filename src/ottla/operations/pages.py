"""Read pages that a broker serves on its metrics listener (``ottla.metrics.listener``)."""

import asyncio
from typing import Final

from ottla.client.admin import Resource, describe_configs
from ottla.client.cluster import Cluster
from ottla.config.addresses import BadAddress, parse_host_port
from ottla.protocol.types import NodeId
from ottla.runtime.ports import Address

LISTENER: Final = "ottla.metrics.listener"
PAGE_BYTES_MAX: Final = 32 << 20
"""The metrics of 100,000 partitions take about this much."""
PAGE_S_MAX: Final = 10.0
# A listener on all interfaces: clients use the broker's own host.
_ANYWHERE: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared, not bound


async def page_address(cluster: Cluster, broker: NodeId) -> Address | None:
    """Return the address of a broker's pages, from its settings; None if it serves none.

    Raises:
        Refused, Fault, OSError: the settings cannot be read.
    """
    configs = await describe_configs(cluster, Resource.BROKER, str(broker), [LISTENER])
    text = next((each.value for each in configs if each.value), None)
    if text is None:
        return None
    try:
        at = parse_host_port(text)
    except BadAddress:
        return None
    host = cluster.nodes[broker].host if at.host in _ANYWHERE else at.host
    return Address(host, at.port) if at.port else None


async def get_page(address: Address, path: str) -> bytes:
    """Return the body of a page.

    Raises:
        OSError, TimeoutError: no answer. ValueError: the status is not 200.
    """
    async with asyncio.timeout(PAGE_S_MAX):
        reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            head = f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode())
            answer = bytearray()
            while len(answer) < PAGE_BYTES_MAX:
                piece = await reader.read(PAGE_BYTES_MAX - len(answer))
                if not piece:
                    break
                answer += piece
        finally:
            writer.close()
    head_bytes, _, body = bytes(answer).partition(b"\r\n\r\n")
    status = head_bytes.split(b" ", 2)[1:2]
    if status != [b"200"]:
        raise ValueError(body.decode(errors="replace").strip() or "no answer")
    return body
