"""Explain the state of a group from its coordinator's history, or else from its description.

The coordinator serves its history on its metrics listener (``ottla.metrics.listener``). If it has
none or does not answer, the explanation is made from the description of the members.
"""

import json
from collections.abc import Callable
from urllib.parse import quote

from ottla.client.admin_groups import GroupDescription, describe_group
from ottla.client.cluster import Cluster
from ottla.operations.counting import plural
from ottla.operations.pages import LISTENER, get_page, page_address
from ottla.operations.rows import Row
from ottla.runtime.ports import Address

_FALLBACK = "explaining from the group's description only"


async def explained(cluster: Cluster, group_id: str, note: Callable[[str], None]) -> Row:
    """Return an explanation of a group; ``sentences`` are for people. Raises `Refused`.

    ``note`` is called with why the coordinator's history is not used.
    """
    group = await describe_group(cluster, group_id)
    address = await page_address(cluster, group.coordinator)
    if address is None:
        note(f"broker {group.coordinator} has no {LISTENER}; {_FALLBACK}")
        return seen(group)
    try:
        return await _page(address, group_id)
    except (OSError, TimeoutError, ValueError) as error:
        note(f"{address} does not answer: {error}; {_FALLBACK}")
        return seen(group)


async def _page(address: Address, group_id: str) -> Row:
    """Fetch the page. Raises OSError, TimeoutError; ValueError: it is missing or malformed."""
    body = await get_page(address, f"/groups/{quote(group_id, safe='')}/explain")
    found = json.loads(body)
    if not isinstance(found, dict) or not isinstance(found.get("sentences"), list):
        raise ValueError("not the page of a group")  # noqa: TRY004 - what came is wrong, no type
    return found


def seen(group: GroupDescription) -> Row:
    """Explain a group from its description alone. Pure."""
    count = plural(len(group.members), "member")
    replies = [f"{group.group_id} is a {group.type} group, {group.state}, with {count}."]
    late = [each for each in group.members if not each.is_settled]
    replies += [
        f"It waits for member {each.member_id} (client {each.client_id} at"
        f" {each.host.removeprefix('/')}), which does not have its target assignment yet."
        for each in late
    ]
    if not late and group.state == "PreparingRebalance":
        replies.append("It waits for members to join again.")
    elif not late and group.state == "CompletingRebalance":
        replies.append("It waits for its leader to send the assignment.")
    elif not late:
        replies.append("It waits for no member.")
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "members": len(group.members),
        "epoch": group.epoch,
        "sentences": replies,
    }
