"""Calls that only some operating systems have are made in one module, which has their fallbacks."""

import ast

from tests.arch.test_architecture import PRODUCT, imported_packages, name_of, parsed
from tests.portable.missing_names import ABSENT, missing_names

THE_PLACE = "runtime/system_calls.py"
# These exist everywhere and behave differently on Windows, or have a method that is missing there.
DIFFERENT = {
    "os": {"open", "rename", "dup"},
    "ctypes": {"CDLL"},
    "loop": {"add_signal_handler", "connect_read_pipe"},
    "loop()": {"add_signal_handler", "connect_read_pipe"},
}
# Each has a reason; the other modules of the product use `ottla.runtime.system_calls`.
ALLOWED = {
    "spark/spark_output.py: os.dup",  # of the standard streams, which are files everywhere
    "runtime/event_loop.py: import uvloop",  # the choice of the event loop is made there
}
# They read files of the Linux kernel, and do without where these are missing.
KERNEL_FILES = {
    "runtime/machine_memory.py",
    "runtime/native_threads.py",
    "observability/process_metrics.py",
}


def forbidden_names() -> dict[str, set[str]]:
    found = {name: set(names) for name, names in DIFFERENT.items()}
    for profile in ABSENT:
        for module, names in missing_names(profile).items():
            found.setdefault(module, set()).update(names)
    return found


def test_calls_of_some_operating_systems_are_made_in_one_module() -> None:
    forbidden = forbidden_names()
    absent = {name for names in ABSENT.values() for name in names}
    found = set()
    for path in PRODUCT:
        name = name_of(path)
        found |= {f"{name}: import {module}" for module in imported_packages(parsed(path)) & absent}
        for node in ast.walk(parsed(path)):
            match node:
                case ast.Attribute(value=owner, attr=attribute):
                    module = ast.unparse(owner).rpartition(".")[2].removeprefix("get_running_")
                    if attribute in forbidden.get(module, ()):
                        found.add(f"{name}: {module}.{attribute}")
                case ast.ImportFrom(module=str(module), names=names):
                    found |= {
                        f"{name}: {module}.{alias.name}"
                        for alias in names
                        if alias.name in forbidden.get(module, ())
                    }
    found = {use for use in found if not use.startswith(f"{THE_PLACE}:")}
    assert sorted(found - ALLOWED) == [], f"use {THE_PLACE}, which has a fallback for each"


def test_files_of_the_linux_kernel_are_read_where_their_absence_is_handled() -> None:
    found = {
        name_of(path)
        for path in PRODUCT
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith(("/proc", "/sys/"))
    }
    assert found - {THE_PLACE} == KERNEL_FILES


def test_every_fallback_was_found_by_its_profile() -> None:
    """The lists are not empty, and hold calls of which it is known that they are missing."""
    assert {"posix_fadvise", "pidfd_open", "fdatasync"} <= missing_names("macos")["os"]
    assert "pread" not in missing_names("macos")["os"]
    assert {"pread", "sendfile", "O_DIRECTORY", "statvfs"} <= missing_names("windows")["os"]
    assert {"SIGKILL", "SIGHUP"} <= missing_names("windows")["signal"]
    assert {"AF_UNIX", "SO_REUSEPORT"} <= missing_names("windows")["socket"]
