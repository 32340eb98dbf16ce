"""The log of a node as text or JSON, and levels at start."""

import json
import logging
import sys
from collections.abc import Iterator

import pytest

from ottla.cli.commands.server_arguments import parse_arguments
from ottla.config.loading import load
from ottla.config.problems import ConfigError
from ottla.observability.log_output import JsonFormatter, configure_log

NODE = (
    "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:0,C://127.0.0.1:0\n"
    "controller.listener.names=C\nlistener.security.protocol.map=PLAINTEXT:PLAINTEXT,C:PLAINTEXT\n"
    "controller.quorum.bootstrap.servers=127.0.0.1:1\nlog.dirs=/nowhere\n"
)


def line(message: str, *arguments: object, error: bool = False) -> dict[str, str]:
    info = None
    if error:
        try:
            raise OSError("disk")
        except OSError:
            info = sys.exc_info()
    record = logging.LogRecord("ottla.x", logging.WARNING, "f", 1, message, arguments, info)
    text = JsonFormatter().format(record)
    assert "\n" not in text
    return dict(json.loads(text))


def test_json_line_has_time_level_logger_and_message() -> None:
    found = line("closed peer=%s", "10.0.0.1")
    assert found["level"] == "WARNING"
    assert (found["logger"], found["message"]) == ("ottla.x", "closed peer=10.0.0.1")
    assert found["time"].endswith("Z")
    assert "error" not in found


def test_json_line_cannot_be_split_by_what_a_client_sends() -> None:
    evil = 'a\r\n{"level": "INFO"}\x1b[2J'
    assert line("client=%s", evil)["message"] == f"client={evil}"
    assert "OSError: disk" in line("failed", error=True)["error"]


@pytest.fixture
def clean_loggers() -> Iterator[None]:
    root, single = logging.getLogger(), logging.getLogger("ottla.some.logger")
    before = root.level, single.level, [handler.formatter for handler in root.handlers]
    yield
    root.setLevel(before[0])
    single.setLevel(before[1])
    for handler, formatter in zip(root.handlers, before[2], strict=True):
        handler.setFormatter(formatter)


@pytest.mark.usefixtures("clean_loggers")
def test_levels_of_all_and_of_single_loggers_are_applied() -> None:
    configure_log("json", "WARN", ("ottla.some.logger=debug",))
    assert logging.getLogger().level == logging.WARNING
    assert logging.getLogger("ottla.some.logger").level == logging.DEBUG
    assert all(isinstance(each.formatter, JsonFormatter) for each in logging.getLogger().handlers)


def test_settings_come_from_the_file_and_the_environment() -> None:
    config = load(NODE + "log.format=json\n", {"KAFKA_LOG_LEVEL": "DEBUG"}).broker
    assert (config.log_format, config.log_level, config.log_levels) == ("json", "DEBUG", ())


@pytest.mark.parametrize(
    "wrong", ["log.format=xml", "log.level=LOUD", "log.levels=ottla.raft=LOUD"]
)
def test_wrong_settings_are_named(wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong.partition("=")[0].replace(".", r"\.")):
        load(NODE + wrong)


def test_option_of_the_server_overrides_the_level() -> None:
    found = parse_arguments([__file__, "--override", "log.level=INFO", "--log-level", "debug"])
    assert found.overrides == ("log.level=INFO", "log.level=DEBUG")
