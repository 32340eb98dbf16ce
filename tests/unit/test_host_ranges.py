"""Ranges of addresses as hosts of ACLs (KIP-1276), against Python's own `ipaddress`."""

import ipaddress

import pytest
from controller_images import CountingRandom, image_of
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.acls import decide_create_acls
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.security.acl import Acl, AclOperation, PatternType, PermissionType, ResourceType, Subject
from ottla.security.acl_index import AclIndex, Outcome
from ottla.security.host_ranges import parse_range

# Few bits differ, so that ranges and addresses meet often.
IPV4 = st.builds(lambda low: ipaddress.IPv4Address(0x0A000000 | low), st.integers(0, 7))
IPV6 = st.builds(lambda low: ipaddress.IPv6Address(0x20010DB8 << 96 | low), st.integers(0, 7))
ADDRESSES = IPV4 | IPV6 | st.ip_addresses()
READ, ALLOW, DENY = AclOperation.READ, PermissionType.ALLOW, PermissionType.DENY


@st.composite
def ranges(draw: st.DrawFn) -> str:
    address = draw(ADDRESSES)
    width = address.max_prefixlen
    return f"{address}/{draw(st.integers(width - 4, width) | st.integers(0, width))}"


def entry(host: str, permission: PermissionType) -> Acl:
    return Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", host, READ, permission)


def covers(text: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    network = ipaddress.ip_network(text, strict=False)
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is not None and network.prefixlen >= 96:
        network = ipaddress.ip_network(f"{mapped}/{network.prefixlen - 96}", strict=False)
    return (getattr(address, "ipv4_mapped", None) or address) in network


@given(st.lists(st.tuples(ranges(), st.sampled_from([ALLOW, DENY])), max_size=4), ADDRESSES)
def test_decision_is_that_of_the_addresses(
    entries: list[tuple[str, PermissionType]],
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    index = AclIndex(entry(text, permission) for text, permission in entries)
    matching = {permission for text, permission in entries if covers(text, address)}
    expected = Outcome.ALLOWED if matching == {ALLOW} else Outcome.DENIED
    if not entries:
        expected = Outcome.NO_ENTRY
    subject = Subject("User:a", str(address))
    assert index.decide(subject, READ, ResourceType.TOPIC, "t") is expected


def test_scope_of_a_client_does_not_matter_to_a_range() -> None:
    index = AclIndex([entry("fe80::/10", ALLOW)])
    subject = Subject("User:a", "fe80:0:0:0:0:0:0:1%2")
    assert index.decide(subject, READ, ResourceType.TOPIC, "t") is Outcome.ALLOWED


@pytest.mark.parametrize(
    "text",
    [
        *("10.0.0.0/33", "10.0.0.0/", "10.0.0.0/x", "10.0.0.0/-1", "10.0.0.0/255.0.0.0"),
        *(
            "2001:db8::/129",
            "fe80:0:0:0:0:0:0:1%2/64",
            "example.com/8",
            "10.0.0/8",
            "/8",
            "10.0.0.0/8/8",
        ),
    ],
)
def test_invalid_range_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        parse_range(text)
    assert created(text, MetadataVersion.IBP_4_4_IV1) == (
        ErrorCode.INVALID_REQUEST,
        f"Invalid CIDR notation: {text}",
    )
    index = AclIndex([entry(text, ALLOW)])
    subject = Subject("User:a", "10.0.0.1")
    assert index.decide(subject, READ, ResourceType.TOPIC, "t") is Outcome.DENIED


def created(host: str, level: MetadataVersion) -> tuple[int, str | None]:
    acl = AclCreation(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", host, READ, ALLOW)
    image = image_of(version=level)
    decision = decide_create_acls(image, CreateAclsRequest([acl]), CountingRandom())
    (result,) = decision.reply.results
    assert bool(decision.records) is (result.error_code == ErrorCode.NONE)
    return result.error_code, result.error_message


@pytest.mark.parametrize("host", ["10.0.0.0/8", "2001:db8::/32"])
def test_range_needs_a_metadata_version_that_every_node_understands(host: str) -> None:
    message = "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
    refused = (ErrorCode.UNSUPPORTED_VERSION, message)
    assert created(host, MetadataVersion.IBP_4_3_IV0) == refused
    assert created(host, MetadataVersion.IBP_4_4_IV0) == refused
    assert created(host, MetadataVersion.IBP_4_4_IV1) == (ErrorCode.NONE, None)
    assert created("10.0.0.1", MetadataVersion.IBP_4_2_IV1) == (ErrorCode.NONE, None)
