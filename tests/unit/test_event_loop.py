"""Which loop a command runs on."""

import asyncio
import sys

import pytest

from ottla.runtime.event_loop import new_event_loop, run


async def kind() -> str:
    return type(asyncio.get_running_loop()).__module__


def test_uvloop_is_used_if_installed() -> None:
    pytest.importorskip("uvloop")
    assert run(kind()).startswith("uvloop")


def test_asyncio_is_used_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert run(kind()).startswith("asyncio")


def test_run_returns_the_result_and_raises_the_error() -> None:
    async def fail() -> None:
        raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        run(fail())


def test_new_event_loop_is_new_each_time() -> None:
    first, second = new_event_loop(), new_event_loop()
    try:
        assert first is not second
    finally:
        first.close()
        second.close()
