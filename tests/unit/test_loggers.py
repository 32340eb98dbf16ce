"""Log levels of a running broker: what is listed, refused, and changed (KIP-412)."""

import asyncio
import logging
from typing import Any

import pytest

from ottla.api.cluster.config_changes import ConfigChangeHandlers
from ottla.api.cluster.describe_settings import DescribeHandlers
from ottla.api.surface.replies import finish
from ottla.api.surface.routes import Caller
from ottla.metadata.image import EMPTY
from ottla.observability.loggers import Loggers
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import alter_configs, describe_configs
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.runtime.ports import Address

LOGGER = 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
CLIENT = Caller("User:ANONYMOUS", "x", Address("127.0.0.1", 1), "PLAINTEXT")


@pytest.fixture
def loggers() -> Loggers:
    """A tree of loggers of its own: a, a.b (known only as a parent), a.b.c and x."""
    root = logging.RootLogger(logging.INFO)
    root.manager = logging.Manager(root)
    for name in ("a", "a.b.c", "x"):
        root.manager.getLogger(name)
    return Loggers(root)


def alter(
    loggers: Loggers, *ops: tuple[str, int, str | None], name: str = "1", validate: bool = False
) -> ErrorCode:
    nothing: Any = None
    handlers = ConfigChangeHandlers(1, lambda: EMPTY, {}, nothing, nothing, loggers)
    resource = AlterConfigsResource(LOGGER, name, [AlterableConfig(*op) for op in ops])
    request = IncrementalAlterConfigsRequest([resource], validate)
    response = asyncio.run(handlers.on_incremental_alter_configs(CLIENT, request, 1))
    (answer,) = response.responses
    assert (answer.error_message is None) == (answer.error_code == 0)
    return ErrorCode(answer.error_code)


def describe(loggers: Loggers, name: str = "1", *keys: str) -> Any:
    handlers = DescribeHandlers(1, lambda: EMPTY, {}, loggers=loggers)
    resource = describe_configs.DescribeConfigsResource(LOGGER, name, list(keys) or None)
    request = describe_configs.DescribeConfigsRequest([resource], include_synonyms=True)
    return finish(handlers.describe_configs_steps(CLIENT, request, 4)).results[0]


def test_loggers_are_listed_with_their_levels_as_kafka_describes_them(loggers: Loggers) -> None:
    found = describe(loggers)
    assert found.error_code == 0
    assert {c.name: c.value for c in found.configs} == {
        "root": "INFO", "a": "INFO", "a.b": "INFO", "a.b.c": "INFO", "x": "INFO",
    }  # fmt: skip
    root = found.configs[0]
    assert (root.name, root.config_source, root.config_type) == ("root", 6, 0)
    assert (root.read_only, root.is_sensitive, root.synonyms) == (False, False, [])
    assert root.documentation == ""
    assert [c.name for c in describe(loggers, "01", "x", "nope").configs] == ["x"]


@pytest.mark.parametrize("level", ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"])
def test_every_level_of_kafka_can_be_set(loggers: Loggers, level: str) -> None:
    assert alter(loggers, ("root", SET, level)) is ErrorCode.NONE
    assert set(loggers.levels().values()) == {level}


def test_level_is_inherited_until_it_is_set_and_after_it_is_deleted(loggers: Loggers) -> None:
    assert alter(loggers, ("a.b", SET, "DEBUG")) is ErrorCode.NONE
    assert loggers.levels() == {
        "root": "INFO", "a": "INFO", "a.b": "DEBUG", "a.b.c": "DEBUG", "x": "INFO",
    }  # fmt: skip
    assert alter(loggers, ("a.b", DELETE, None)) is ErrorCode.NONE
    assert set(loggers.levels().values()) == {"INFO"}


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (("root", SET, "debug"), ErrorCode.INVALID_CONFIG),
        (("root", SET, "OFF"), ErrorCode.INVALID_CONFIG),
        (("root", SET, "ALL"), ErrorCode.INVALID_CONFIG),
        (("root", SET, ""), ErrorCode.INVALID_CONFIG),
        (("root", SET, None), ErrorCode.INVALID_REQUEST),
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        (("x", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (("x", SUBTRACT, "INFO"), ErrorCode.INVALID_REQUEST),
        (("x", 7, "INFO"), ErrorCode.INVALID_REQUEST),
        (("nope", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (("nope", DELETE, None), ErrorCode.INVALID_CONFIG),
    ],
)
def test_rejected_level_change_changes_nothing(
    loggers: Loggers, operation: tuple[str, int, str | None], code: ErrorCode
) -> None:
    before = loggers.levels()
    assert alter(loggers, ("a", SET, "ERROR"), operation) is code
    assert loggers.levels() == before


@pytest.mark.parametrize("name", ["", "2", "x"])
def test_only_the_loggers_of_this_broker_can_be_changed(loggers: Loggers, name: str) -> None:
    assert alter(loggers, ("root", SET, "WARN"), name=name) is ErrorCode.INVALID_REQUEST
    assert loggers.levels()["root"] == "INFO"


def test_validation_alone_changes_no_level(loggers: Loggers) -> None:
    assert alter(loggers, ("root", SET, "WARN"), validate=True) is ErrorCode.NONE
    assert loggers.levels()["root"] == "INFO"


def test_logger_listed_twice_is_rejected(loggers: Loggers) -> None:
    ops = (("root", SET, "WARN"), ("root", SET, "INFO"))
    assert alter(loggers, *ops) is ErrorCode.INVALID_REQUEST


def test_alter_configs_rejects_loggers(loggers: Loggers) -> None:
    nothing: Any = None
    handlers = ConfigChangeHandlers(1, lambda: EMPTY, {}, nothing, nothing, loggers)
    configs = [alter_configs.AlterableConfig("root", "WARN")]
    resource = alter_configs.AlterConfigsResource(LOGGER, "1", configs)
    request = alter_configs.AlterConfigsRequest([resource])
    (answer,) = asyncio.run(handlers.on_alter_configs(CLIENT, request, 2)).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert loggers.levels()["root"] == "INFO"


@pytest.mark.parametrize(
    ("level", "shown"), [(0, "TRACE"), (15, "INFO"), (31, "ERROR"), (60, "OFF")]
)
def test_level_without_a_name_is_shown_as_the_next_higher_one(
    loggers: Loggers, level: int, shown: str
) -> None:
    loggers._logger("root").setLevel(level)
    assert loggers.levels()["root"] == shown
