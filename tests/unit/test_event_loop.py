"""Which loop a command runs on."""

import asyncio
import sys

import pytest

from ottla.runtime.event_loop import new_event_loop, run


async def kind() -> str:
    return type(asyncio.get_running_loop()).__module__


def test_the_faster_loop_runs_where_it_is_installed() -> None:
    pytest.importorskip("uvloop")
    assert run(kind()).startswith("uvloop")


def test_without_it_asyncio_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert run(kind()).startswith("asyncio")


def test_what_it_runs_is_returned_and_raised() -> None:
    async def fail() -> None:
        raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        run(fail())


def test_a_loop_is_new_each_time() -> None:
    first, second = new_event_loop(), new_event_loop()
    try:
        assert first is not second
    finally:
        first.close()
        second.close()
