"""Commands of a user without rights name the right that is missing, and a command that grants it.

Each command is run again after the administrator has run the command of its message. That must
lead to the end without granting anything twice; then the message was right every time.
"""

import re
import shlex
from collections.abc import Iterator

import pytest
from authorized_session import authorized_node
from secure_node import SecureNode
from typer.testing import CliRunner, Result

from ottla.cli.app import app

GRANT = re.compile(r"lacks the right (\w+) on .*; an administrator grants it with: ottla (acl .*)")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    node = authorized_node(tmp_path_factory.mktemp("permissions"))
    node.extra += ("delegation.token.secret.key=a-key-for-tokens",)
    (node.root / "lines").write_text("a\nb\n")
    running = node.start()
    try:
        for command in (
            "topic create orders-7 -p 1",
            "topic create spare -p 1",
            "produce orders-7 LINES",
            "consume orders-7 -e -g g",
        ):
            done = invoke(node, "node", command)
            assert done.exit_code == 0, done.output
        yield node
    finally:
        running.stop()


@pytest.fixture(autouse=True)
def without_rights(secure: SecureNode) -> None:
    done = invoke(secure, "node", "acl remove --allow-principal User:alice --force")
    assert done.exit_code == 0, done.output


def invoke(secure: SecureNode, user: str, command: str) -> Result:
    """Run a command of a user; LINES in it is a file."""
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
    }
    own = [word for key, value in properties.items() for word in ("-X", f"{key}={value}")]
    at = ("-b", secure.bootstrap("LOGIN"), *own)
    words = shlex.split(command.replace("LINES", str(secure.root / "lines")))
    return CliRunner().invoke(app, [*words, *at])


def grant_until_allowed(secure: SecureNode, command: str) -> list[str]:
    """Run a command of alice, and what its messages tell an administrator, until it is allowed."""
    commands: list[str] = []
    while True:
        done = invoke(secure, "alice", command)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        if "AUTHORIZATION_FAILED" not in done.output + done.stderr:
            return commands
        match = GRANT.search(done.stderr)
        assert match is not None, done.stderr
        assert match[2] not in commands, f"granted already: {done.stderr}"
        commands.append(match[2])
        granted = invoke(secure, "node", match[2])
        assert granted.exit_code == 0, granted.output


CASES: list[tuple[str, list[str]]] = [
    ("produce orders-7 LINES", ["write --topic orders-7"]),
    ("produce -a 1 orders-7 LINES", ["write --topic orders-7"]),
    ("produce absent LINES", ["write --topic absent", "create --topic absent"]),
    ("consume orders-7 -e", ["read --topic orders-7"]),
    ("consume orders-7 -e -g g", ["read --group g", "read --topic orders-7"]),
    ("topic describe orders-7", ["describe --topic orders-7", "describe_configs --topic orders-7"]),
    ("topic offsets orders-7", ["describe --topic orders-7"]),
    ("topic create other", ["create --topic other"]),
    ("topic delete spare", ["delete --topic spare"]),
    ("topic alter orders-7 -p 2", ["alter --topic orders-7"]),
    (
        "topic alter orders-7 -c retention.ms=9000000",
        ["alter_configs --topic orders-7", "describe --topic orders-7"],
    ),
    ("topic elect", ["alter --cluster"]),
    ("topic reassign", ["describe --cluster"]),
    ("config describe topic orders-7", ["describe_configs --topic orders-7"]),
    ("config set topic orders-7 retention.ms=9000001", ["alter_configs --topic orders-7"]),
    ("config describe broker 1", ["describe_configs --cluster"]),
    ("config set broker 1 log.cleaner.threads=1", ["alter_configs --cluster"]),
    ("config describe group g", ["describe_configs --group g"]),
    ("config set group g consumer.session.timeout.ms=50000", ["alter_configs --group g"]),
    ("group describe g", ["describe --group g"]),
    ("group delete g", ["delete --group g"]),
    ("txn describe tx", ["describe --transactional-id tx"]),
    ("user list", ["describe --cluster"]),
    ("user delete alice -m SCRAM-SHA-256", ["describe --cluster", "alter --cluster"]),
    ("acl list", ["describe --cluster"]),
    (
        "acl add --allow-principal User:x --operation read --topic t",
        ["alter --cluster"],
    ),
    ("quota list", ["describe_configs --cluster"]),
    ("quota set producer_byte_rate=9 --user x", ["alter_configs --cluster"]),
    ("client-metrics list", ["describe_configs --cluster"]),
    ("cluster quorum describe", ["describe --cluster"]),
    ("cluster health", ["describe --cluster"]),
    ("cluster unregister 9 --force", ["alter --cluster"]),
    ("group lag g", ["describe --group g"]),
    (
        "group reset-offsets g -t orders-7 --to-earliest --execute",
        [
            "describe --group g",
            "describe --topic orders-7",
            "read --group g",
            "read --topic orders-7",
        ],
    ),
    ("share describe s", ["describe --group s"]),
    ("share offsets s", ["describe --group s"]),
    ("share reset-offsets s -t orders-7 --to-earliest --execute", ["describe --group s"]),
    ("share delete-offsets s orders-7", ["delete --group s"]),
    ("share delete s", ["delete --group s"]),
    ("txn abort tx", ["write --transactional-id tx"]),
    ("txn hanging -t orders-7", ["describe --topic orders-7", "read --topic orders-7"]),
    (
        "logdir move orders-7 --broker 1 --to /nowhere",
        ["describe --topic orders-7", "alter --cluster"],
    ),
    (
        "topic reassign orders-7 --to 1",
        ["describe --topic orders-7"],
    ),
    ("client-metrics set m --interval 1000", ["alter_configs --cluster"]),
    ("tier status orders-7", ["describe --topic __remote_log_metadata"]),
    ("logdir list", ["describe --cluster"]),
    ("token create --owner User:bob", ["create_tokens --user-principal User:bob"]),
]


@pytest.mark.parametrize(("command", "rights"), CASES, ids=[command for command, _ in CASES])
def test_message_of_a_refusal_grants_what_is_missing(
    secure: SecureNode, command: str, rights: list[str]
) -> None:
    add = "acl add --allow-principal User:alice --operation "
    granted = grant_until_allowed(secure, command)
    assert [each.removeprefix(add) for each in granted] == rights


def test_sql_names_the_right_to_read(secure: SecureNode) -> None:
    query = """sql 'select * from "orders-7"'"""
    assert "no topics that this user may describe" in invoke(secure, "alice", query).stderr
    describe = "acl add --allow-principal User:alice --operation describe --topic orders-7"
    assert invoke(secure, "node", describe).exit_code == 0
    granted = grant_until_allowed(secure, query)
    assert granted == [describe.replace("operation describe", "operation read")]
