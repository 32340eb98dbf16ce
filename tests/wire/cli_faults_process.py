"""Run command lines of ``ottla`` under faults of the operating system, each in a fork.

Reads cases as JSON from stdin, and writes the exit code and the output of each one to stdout. The
command line is imported once, so that a case costs a fork.

    {"words": [...], "stdout": "pipe|full|closed|broken", "is_powerless": false, "bytes_max": null}
"""

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from importlib import import_module
from typing import Any

CAPABILITY_VERSION = 0x20080522
SECONDS_MAX = 40.0
FULL = "/dev/full"


def main() -> None:
    from typer.testing import CliRunner

    from ottla.cli.app import COMMANDS, app

    for module in COMMANDS.values():  # imported once for all forks
        import_module(module)
    for words in (["topic", "list", "--help"], ["topic", "list", "--port"], ["random-uuid"]):
        CliRunner().invoke(app, words)

    results = [run(case) for case in json.load(sys.stdin)]
    json.dump(results, sys.stdout)


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Return the exit code (negative: a signal) and what was written to stdout and stderr."""
    began = time.monotonic()
    out, errors = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        become(case, out, errors)
    os.close(out[1])
    os.close(errors[1])
    if case.get("stdout") == "broken":
        os.close(out[0])
    texts, is_late = read_both(errors[0], None if case.get("stdout") == "broken" else out[0])
    if is_late:
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    return {
        "code": code,
        "stderr": texts[0],
        "stdout": texts[1],
        "is_late": is_late,
        "took": time.monotonic() - began,
    }


def read_both(errors: int, out: int | None) -> tuple[list[str], bool]:
    ends, found = time.monotonic() + SECONDS_MAX, {errors: b"", out: b""}
    left = [each for each in (errors, out) if each is not None]
    while left and time.monotonic() < ends:
        for ready in select.select(left, [], [], 0.2)[0]:
            data = os.read(ready, 1 << 16)
            found[ready] += data
            if not data:
                left.remove(ready)
                os.close(ready)
    texts = [found[errors].decode(errors="replace"), found[out].decode(errors="replace")]
    return texts, bool(left)


def drop_capabilities() -> None:
    """Make root an ordinary user, who still owns its files: permissions of others count."""

    class Header(ctypes.Structure):
        _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))

    class Sets(ctypes.Structure):
        _fields_ = (("sets", ctypes.c_uint32 * 6),)

    header, none = Header(CAPABILITY_VERSION, 0), Sets()
    assert ctypes.CDLL(None).capset(ctypes.byref(header), ctypes.byref(none)) == 0


def become(case: dict[str, Any], out: tuple[int, int], errors: tuple[int, int]) -> None:
    """Run the command line in this process, as its shell would have started it."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    kind = case.get("stdout", "pipe")
    os.dup2(os.open(FULL, os.O_WRONLY) if kind == "full" else out[1], 1)
    os.dup2(errors[1], 2)
    os.closerange(3, 64)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    if kind == "closed":
        os.close(1)
        sys.stdout = None  # as in an interpreter that was started without it
    if case.get("bytes_max") is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (case["bytes_max"],) * 2)
    if case.get("is_powerless"):
        drop_capabilities()
    os.environ.update(case.get("environment", {}))
    os.environ["HOME"] = "/nonexistent"
    sys.argv = ["ottla", *case["words"]]
    code: object = 99
    try:
        from ottla.cli.main import main as ottla

        ottla()
        code = 0
    except SystemExit as error:
        code = error.code
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        is_flushed = True
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except OSError as error:
            is_flushed = False
            os.write(2, f"Exception ignored: {error}\n".encode())
        sys.stderr.flush()
        os._exit(
            120 if not is_flushed else code if isinstance(code, int) else 0 if code is None else 1
        )


if __name__ == "__main__":
    main()
