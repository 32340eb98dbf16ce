"""The cost of ACLs: one decision among 10,000 entries, and small requests with and without them."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tests.free_ports import free_ports

from benchmarks.broker.brokers import Broker, Missing, ottla
from benchmarks.broker.programs import measure
from benchmarks.report import Row, seconds
from benchmarks.requests import small_request
from ottla.security import acl
from ottla.security.authorizer import AclAuthorizer

ENTRIES = 10_000
DECISIONS = 5000
CACHED_US_MAX, UNCACHED_US_MAX = 2.0, 50.0
RATIO_MIN = 0.9
CONNECTIONS = 16
ROUNDS = 5
SECONDS = 3.0
SECONDS_MAX = 60
AUTHORIZER = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def run() -> list[Row]:
    """Return the rows."""
    rows = _decisions()
    try:
        rows.append(_small_requests())
    except Missing as error:
        print(f"acls: small requests not measured, {error}", file=sys.stderr)
    return rows


# -- one decision ----------------------------------------------------------------------


def _entries() -> list[acl.Acl]:
    """Return entries of a thousand users: literal and prefixed ones, and some denials."""
    allow, deny = acl.PermissionType.ALLOW, acl.PermissionType.DENY
    literal, prefixed = acl.PatternType.LITERAL, acl.PatternType.PREFIXED
    return [
        acl.Acl(
            acl.ResourceType.TOPIC,
            f"team-{number % 500}-" if number % 5 == 0 else f"team-{number % 500}-topic-{number}",
            prefixed if number % 5 == 0 else literal,
            f"User:user-{number % 1000}",
            "*",
            acl.AclOperation.READ if number % 2 else acl.AclOperation.WRITE,
            deny if number % 50 == 0 else allow,
        )
        for number in range(ENTRIES)
    ]


def _decisions() -> list[Row]:
    authorizer = AclAuthorizer()
    authorizer.load(_entries())
    read, topic = acl.AclOperation.READ, acl.ResourceType.TOPIC
    asked = [
        (
            acl.Subject(f"User:user-{number % 1000}", "127.0.0.1"),
            f"team-{number % 500}-topic-{number}",
        )
        for number in range(DECISIONS)
    ]

    def ask() -> None:
        for subject, name in asked:
            authorizer.allows(subject, read, topic, name)

    def ask_anew() -> None:
        authorizer.update((), ())  # forgets all decisions
        ask()

    rows = []
    for label, work, limit in (
        ("kept", ask, CACHED_US_MAX),
        ("made anew", ask_anew, UNCACHED_US_MAX),
    ):
        taken_us = seconds(work) / DECISIONS * 1e6
        rows.append(
            Row(
                "acls",
                f"a decision among {ENTRIES:,} entries, {label}",
                f"{taken_us:.2f} us",
                f"{limit:.0f} us",
                taken_us / limit,
                "at most 1.0",
                taken_us <= limit,
            )
        )
    return rows


# -- small requests --------------------------------------------------------------------


def _small_requests() -> Row:
    """Compare small Produce requests of a client with an ACL with those of a node without ACLs."""
    rates: dict[str, list[float]] = {"on": [], "off": []}
    with tempfile.TemporaryDirectory(prefix="acls-") as name, ExitStack() as stack:
        frame = Path(name) / "frame"
        frame.write_bytes(small_request("small"))
        nodes = {
            "on": stack.enter_context(_node(Path(name) / "on", with_acls=True)),
            "off": stack.enter_context(_node(Path(name) / "off", with_acls=False)),
        }
        for turn in range(ROUNDS + 1):  # the first warms up
            for which, node in nodes.items():
                arguments = ("127.0.0.1", node.port, frame, CONNECTIONS, SECONDS)
                told = measure("requests", *arguments)
                if turn:
                    rates[which].append(told["rate"])
    ratio = median(on / off for on, off in zip(rates["on"], rates["off"], strict=True))
    return Row(
        "acls",
        f"small Produce over {CONNECTIONS} connections, {ENTRIES:,} entries",
        f"{median(rates['on']):,.0f} per s",
        f"without ACLs {median(rates['off']):,.0f} per s",
        ratio,
        f"at least {RATIO_MIN}",
        ratio >= RATIO_MIN,
    )


@contextmanager
def _node(root: Path, *, with_acls: bool) -> Iterator[Broker]:
    """Run a node whose clients are anonymous, and which itself logs in by certificate."""
    root.mkdir()
    authority = trustme.CA()
    trust, store = root / "ca.pem", root / "node.pem"
    trust.write_bytes(authority.cert_pem.bytes())
    leaf = authority.issue_cert("127.0.0.1", common_name="node")
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    store.write_bytes(leaf.private_key_pem.bytes() + chain)
    broker = ottla(root / "node")
    port = free_ports(1)[0]
    settings = broker.root / "server.properties"
    lines = [
        line + f",INTERNAL://127.0.0.1:{port}" if line.startswith("listeners=") else line
        for line in settings.read_text().splitlines()
    ]
    lines += [
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:SSL,INTERNAL:SSL",
        "inter.broker.listener.name=INTERNAL",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={store}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={trust}",
        "ssl.client.auth=required",
        "ssl.principal.mapping.rules=RULE:^.*CN=([^,]*).*$/$1/,DEFAULT",
        *([AUTHORIZER, "super.users=User:node"] if with_acls else []),
    ]
    settings.write_text("\n".join(lines) + "\n")
    broker.format()
    broker.start()
    try:
        _prepare(
            {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "security.protocol": "ssl",
                "ssl.ca.location": str(trust),
                "ssl.certificate.location": str(store),
                "ssl.key.location": str(store),
            },
            with_acls=with_acls,
        )
        yield broker
    finally:
        broker.stop()


def _prepare(settings: dict[str, Any], *, with_acls: bool) -> None:
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("small", 1, 1)])["small"].result(SECONDS_MAX)
    if not with_acls:
        return
    operations = {
        acl.AclOperation.READ: AclOperation.READ,
        acl.AclOperation.WRITE: AclOperation.WRITE,
    }
    patterns = {3: ResourcePatternType.LITERAL, 4: ResourcePatternType.PREFIXED}
    permissions = {2: AclPermissionType.DENY, 3: AclPermissionType.ALLOW}
    bindings = [
        AclBinding(
            ResourceType.TOPIC,
            entry.resource_name,
            patterns[entry.pattern_type],
            entry.principal,
            entry.host,
            operations[acl.AclOperation(entry.operation)],
            permissions[entry.permission_type],
        )
        for entry in _entries()
    ]
    own = AclBinding(
        ResourceType.TOPIC,
        "small",
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    bindings = [*dict.fromkeys(bindings), own]
    for at in range(0, len(bindings), 1000):
        for done in admin.create_acls(bindings[at : at + 1000]).values():
            done.result(SECONDS_MAX)
