"""Where a command's connection settings come from, and profiles."""

import datetime
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ottla.cli.app import COMMANDS, app
from ottla.cli.connecting import connection_settings
from ottla.cli.connecting.connection_options import moved_after_command
from ottla.cli.connecting.connection_settings import Given, client_properties, resolve_bootstrap
from ottla.cli.connecting.profiles import read_profiles
from ottla.cli.connecting.session import parse_bootstrap
from ottla.runtime.ports import Address
from ottla.security.certificate_authority import create_authority


@pytest.fixture(autouse=True)
def own_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config" / "profiles.toml"
    monkeypatch.setenv("OTTLA_PROFILES", str(path))
    monkeypatch.setattr(
        connection_settings, "_given", type(connection_settings._given)("t", default=Given())
    )
    return path


def run(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
    return done.stdout if code == 0 else done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one", [Address("one", 9092)]),
        ("one:1, two", [Address("one", 1), Address("two", 9092)]),
        ("[::1]", [Address("::1", 9092)]),
        ("[::1]:9", [Address("::1", 9)]),
    ],
)
def test_port_of_a_broker_is_9092_unless_given(text: str, expected: list[Address]) -> None:
    assert parse_bootstrap(text) == expected


def test_ipv6_address_without_brackets_is_refused_with_advice() -> None:
    assert "needs brackets" in run("topic", "list", "-b", "::1", code=2)


def test_stronger_sources_win(tmp_path: Path) -> None:
    run("profile", "set", "p", "bootstrap.servers=p:1", "client.id=p", "ssl.protocol=p")
    file = tmp_path / "client.properties"
    file.write_text("client.id=file\nsasl.username=file\nssl.protocol=file\n")
    connection_settings.remember(Given("p", str(file), {"sasl.username": "x"}))
    environment = {"OTTLA_SSL_PROTOCOL": "env", "OTTLA_SASL_USERNAME": "env", "OTTLA_OTHER": "no"}
    found = client_properties(environment)
    assert found == {
        "bootstrap.servers": "p:1",
        "client.id": "file",
        "ssl.protocol": "env",
        "sasl.username": "x",
    }
    assert resolve_bootstrap("", found) == "p:1"
    assert resolve_bootstrap("given:2", found) == "given:2"
    assert resolve_bootstrap("", {}) == "localhost:9092"


def test_profile_hides_secrets_and_is_private(own_profiles: Path, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=a\n")
    reply = run(
        "profile", "set", "staging", "-f", str(file), "bootstrap.servers=s:1", "sasl.password=gir\\"
    )
    assert "gir" not in reply
    assert own_profiles.stat().st_mode & 0o777 == 0o600
    shown = {
        row["key"]: row["value"]
        for row in json.loads(run("profile", "show", "staging", "-o", "json"))
    }
    assert shown["sasl.password"] == "(hidden)" and shown["sasl.username"] == "a"
    assert client_of("staging")["sasl.password"] == "gir\\"
    (row,) = json.loads(run("profile", "list", "-o", "json"))
    assert row == {"profile": "staging", "bootstrap": "s:1", "protocol": "SASL_PLAINTEXT"}
    run("profile", "set", "staging", "-d", "bootstrap.servers")
    assert "bootstrap.servers" not in client_of("staging")
    run("profile", "remove", "staging")
    assert json.loads(run("profile", "list", "-o", "json")) == []
    assert "no profile" in run("profile", "show", "staging", code=1)


def client_of(profile: str) -> dict[str, str]:
    connection_settings.remember(Given(profile))
    return client_properties({})


def test_profiles_may_be_written_by_hand(own_profiles: Path) -> None:
    own_profiles.parent.mkdir()
    own_profiles.write_text('[p]\nbootstrap.servers = "h:1"\nsecurity.protocol = "SSL"\n')
    assert client_of("p") == {"bootstrap.servers": "h:1", "security.protocol": "SSL"}
    own_profiles.write_text('[p]\nsasl.password = "giraffe\n')
    reply = run("profile", "show", "p", code=1)
    assert "not valid TOML" in reply and "giraffe" not in reply


def test_profile_that_cannot_connect_is_not_kept() -> None:
    run("profile", "set", "p", "security.protocol=SASL_SSL", code=2)
    assert json.loads(run("profile", "list", "-o", "json")) == []


def test_every_command_with_bootstrap_takes_the_connection_options() -> None:
    import typer.main

    root = typer.main.get_command(app)
    context = typer.Context(root)
    seen = 0
    for name in COMMANDS:
        command = root.get_command(context, name)
        for each in getattr(command, "commands", {"": command}).values():
            options = {option for param in each.params for option in param.opts}
            if "--bootstrap" in options:
                seen += 1
                assert {"--command-config", "-X", "--profile"} <= options, name
    assert seen > 20


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("-b h:1 topic list", "topic list -b h:1"),
        ("-o json --profile p topic list --internal", "-o json topic list --internal --profile p"),
        ("--bootstrap=h consume t -- -x", "consume t --bootstrap=h -- -x"),
        ("-X a=b -X c=d cluster info", "cluster info -X a=b -X c=d"),
        ("topic list -b h", "topic list -b h"),
        ("-o yaml topic list", "-o yaml topic list"),
        ("--profile p", "--profile p"),
        ("--help", "--help"),
    ],
)
def test_connection_options_may_come_before_the_command(given: str, expected: str) -> None:
    assert moved_after_command(given.split()) == expected.split()


def test_early_bootstrap_reaches_the_command() -> None:
    done = CliRunner().invoke(app, ["-b", "127.0.0.1:1", "-o", "json", "topic", "list"])
    assert "127.0.0.1:1: connection refused" in json.loads(done.stderr)["error"]


def test_misspelt_profile_and_setting_are_answered_with_the_closest_ones() -> None:
    done = CliRunner().invoke(app, ["profile", "set", "staging", "bootstrap.server=s:1"])
    assert "did you mean 'bootstrap.servers'?" in done.stderr
    assert "did you mean 'staging'?" in run("profile", "show", "stagin", code=1)
    assert "did you mean" in run("topic", "list", "--profile", "stagin", code=2)


def test_profile_keeps_absolute_paths(
    own_profiles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = create_authority("a test", datetime.datetime.now(datetime.UTC))
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    monkeypatch.chdir(tmp_path)
    run("profile", "set", "near", "security.protocol=SSL", "ssl.ca.location=ca.pem")
    (tmp_path / "client.properties").write_text("ssl.ca.location=./ca.pem\n")
    run("profile", "set", "file", "security.protocol=SSL", "-f", "client.properties")
    monkeypatch.chdir("/")
    kept = str(tmp_path / "ca.pem")
    assert read_profiles()["near"]["ssl.ca.location"] == kept
    assert read_profiles()["file"]["ssl.ca.location"] == kept
