"""Why a group is as it is: what its coordinator remembers, or else what can be seen of it.

The coordinator's page is on its metrics listener (``ottla.metrics.listener``), which the broker's
settings name. Where it has none, or does not answer, the members' own state has to do.
"""

import asyncio
import json
from urllib.parse import quote

from ottla.cli.options import say
from ottla.cli.rendering import Row
from ottla.client.admin import Resource, describe_configs
from ottla.client.admin_groups import GroupDescription, describe_group
from ottla.client.cluster import Cluster
from ottla.config.addresses import BadAddress, parse_host_port
from ottla.runtime.ports import Address

LISTENER = "ottla.metrics.listener"
PAGE_BYTES_MAX = 1 << 20
PAGE_S_MAX = 10.0
# As a listener, "here"; for whoever dials, the broker's own host.
_ANYWHERE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared, not bound


async def explained(cluster: Cluster, group_id: str) -> Row:
    """Return what there is to say of a group; ``sentences`` are for people. Raises `Refused`."""
    group = await describe_group(cluster, group_id)
    address = await _page_address(cluster, group)
    if address is None:
        say(f"broker {group.coordinator} has no {LISTENER}: only what can be seen is told")
        return seen(group)
    try:
        return await _page(address, group_id)
    except (OSError, TimeoutError, ValueError) as error:
        say(f"{address} does not tell: {error}; only what can be seen is told")
        return seen(group)


async def _page_address(cluster: Cluster, group: GroupDescription) -> Address | None:
    """Return where the coordinator serves its pages, as its settings say."""
    name = str(group.coordinator)
    configs = await describe_configs(cluster, Resource.BROKER, name, [LISTENER])
    text = next((each.value for each in configs if each.value), None)
    if text is None:
        return None
    try:
        at = parse_host_port(text)
    except BadAddress:
        return None
    host = cluster.nodes[group.coordinator].host if at.host in _ANYWHERE else at.host
    return Address(host, at.port) if at.port else None


async def _page(address: Address, group_id: str) -> Row:
    """Ask for the page. Raises OSError, TimeoutError; ValueError: it is not there, or no page."""
    async with asyncio.timeout(PAGE_S_MAX):
        reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            path = f"/groups/{quote(group_id, safe='')}/explain"
            head = f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode())
            answer = await reader.read(PAGE_BYTES_MAX)
            while not reader.at_eof() and len(answer) < PAGE_BYTES_MAX:
                answer += await reader.read(PAGE_BYTES_MAX - len(answer))
        finally:
            writer.close()
    head_bytes, _, body = answer.partition(b"\r\n\r\n")
    status = head_bytes.split(b" ", 2)[1:2]
    if status != [b"200"]:
        raise ValueError(body.decode(errors="replace").strip() or "no answer")
    found = json.loads(body)
    if not isinstance(found, dict) or not isinstance(found.get("sentences"), list):
        raise ValueError("not the page of a group")  # noqa: TRY004 - what came is wrong, no type
    return found


def seen(group: GroupDescription) -> Row:
    """Return what the description alone says. Pure."""
    count = "1 member" if len(group.members) == 1 else f"{len(group.members)} members"
    told = [f"{group.group_id} is a {group.type} group, {group.state}, with {count}."]
    late = [each for each in group.members if not each.is_settled]
    told += [
        f"It waits for member {each.member_id} (client {each.client_id} at"
        f" {each.host.removeprefix('/')}), which has not yet what it shall have."
        for each in late
    ]
    if not late and group.state == "PreparingRebalance":
        told.append("It waits for members to join again.")
    elif not late and group.state == "CompletingRebalance":
        told.append("It waits for its leader to say who reads what.")
    elif not late:
        told.append("It waits for nobody.")
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "members": len(group.members),
        "epoch": group.epoch,
        "sentences": told,
    }
