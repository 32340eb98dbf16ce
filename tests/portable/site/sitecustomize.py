"""Hides from the product what macOS or Windows lack. Python imports this module at its start.

``OTTLA_HIDES`` is a JSON document of `tests.portable.missing_names`. Modules of the product import
stand-ins for ``os``, ``socket`` and others, which lack these names and, for Windows, behave as
there: binary files need a flag, directories cannot be opened, files that are open can be
neither renamed nor deleted, a rename does not replace, sockets are no file descriptors.
"""

import builtins
import errno
import importlib
import json
import os
import stat
import sys
import types
from collections.abc import Callable
from contextlib import suppress

PRODUCT = "ottla"
# Frames of the standard library between the product and the call.
BETWEEN = ("pathlib", "io", "os", "codecs", "contextlib", "tempfile")
O_BINARY = 0x8000


class StandIn(types.ModuleType):
    """A module without some names, and with others replaced."""

    def __init__(
        self, real: types.ModuleType, hidden: frozenset[str], replaced: dict[str, object]
    ) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(replaced)
        self.__dict__["_real"], self.__dict__["_hidden"] = real, hidden

    def __getattr__(self, name: str) -> object:
        if name in self._hidden:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self._real, name)


def install(profile: str, names: dict[str, list[str]], absent: list[str]) -> None:
    """Give the product's modules stand-ins from now on."""
    replaced = {"ctypes": {"CDLL": _no_c_library(profile)}}
    if profile == "windows":
        replaced["os"] = _windows_os()
        replaced["socket"] = {"SO_EXCLUSIVEADDRUSE": 2}  # SO_REUSEADDR of Linux
        sys.modules["_ottla_msvcrt"] = _msvcrt()
        _restrict_event_loops()
    stand_ins = {
        name: StandIn(importlib.import_module(name), frozenset(names.get(name, ())), changes)
        for name, changes in {**{key: {} for key in names}, **replaced}.items()
    }
    if profile == "windows":
        stand_ins["msvcrt"] = sys.modules.pop("_ottla_msvcrt")
    sys.addaudithook(_hide_kernel_files)
    _replace_imports(stand_ins, frozenset(absent))


def _replace_imports(stand_ins: dict[str, types.ModuleType], absent: frozenset[str]) -> None:
    real_import, real_import_module = builtins.__import__, importlib.import_module

    def look_up(name: str, importer: str) -> types.ModuleType | None:
        if not (importer == PRODUCT or importer.startswith(f"{PRODUCT}.")):
            return None
        top = name.partition(".")[0]
        if top in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return stand_ins.get(top)

    def import_(
        name: str,
        globals: dict[str, object] | None = None,
        locals: object = None,
        fromlist: tuple[str, ...] = (),
        level: int = 0,
    ) -> types.ModuleType:
        importer = str((globals or {}).get("__name__", ""))
        if importer == "__main__":
            importer = getattr((globals or {}).get("__spec__"), "name", None) or ""
        found = look_up(name, importer) if level == 0 else None
        if found is not None and not (fromlist and "." in name):
            return found
        return real_import(name, globals, locals, fromlist, level)

    def import_module(name: str, package: str | None = None) -> types.ModuleType:
        importer = str(sys._getframe(1).f_globals.get("__name__", ""))
        return look_up(name, importer) or real_import_module(name, package)

    builtins.__import__ = import_
    importlib.import_module = import_module


# -- files of the kernel, and the C library --------------------------------------------------


def _hide_kernel_files(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and isinstance(
        arguments[0], str | os.PathLike
    ):
        path = os.fspath(arguments[0])
        if isinstance(path, str) and path.startswith(("/proc/", "/sys/")) and _is_product(2):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _is_product(depth: int) -> bool:
    """Say whether the product made the call."""
    frame: types.FrameType | None = sys._getframe(depth)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in BETWEEN:
            return name.startswith(f"{PRODUCT}.")
        frame = frame.f_back
    return False


def _no_c_library(profile: str) -> Callable[..., object]:
    def load(name: str | None, *arguments: object, **options: object) -> object:
        if name is None and profile == "windows":
            raise TypeError("bad argument type for built-in operation")
        return types.SimpleNamespace()

    return load


# -- Windows ---------------------------------------------------------------------------------


def _windows_os() -> dict[str, object]:
    """Return the functions of ``os`` that behave differently on Windows."""

    def open_(path: object, flags: int, mode: int = 0o777) -> int:
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        assert flags & O_BINARY or os.fspath(path) == os.devnull, f"{path}: text mode"
        return os.open(path, flags & ~O_BINARY, mode)

    def rename(source: object, target: object) -> None:
        if os.path.exists(target):
            raise FileExistsError(errno.EEXIST, "File exists", source, None, target)
        replace(source, target)

    def replace(source: object, target: object) -> None:
        _refuse_open(source)
        _refuse_open(target)
        os.replace(source, target)

    def unlink(path: object) -> None:
        _refuse_open(path)
        os.unlink(path)

    def file_only(call: Callable[..., object]) -> Callable[..., object]:
        def checked(fd: int, *arguments: object) -> object:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            return call(fd, *arguments)

        return checked

    plain = {name: file_only(getattr(os, name)) for name in ("read", "write", "dup", "close")}
    changed = {"open": open_, "rename": rename, "replace": replace, "unlink": unlink}
    return {"name": "nt", "O_BINARY": O_BINARY, "remove": unlink, **changed, **plain}


def _refuse_open(path: object) -> None:
    """Refuse a file that this process has open, and a directory with such a file."""
    target = os.path.realpath(os.fspath(path))
    for number in os.listdir("/proc/self/fd"):
        held = ""
        with suppress(OSError):  # it was closed meanwhile
            held = os.readlink(f"/proc/self/fd/{number}")
        if held == target or held.startswith(f"{target}/"):
            raise WindowsRefusal(errno.EACCES, "it is open", os.fspath(path))


class WindowsRefusal(PermissionError):
    """A file is open."""


def _msvcrt() -> types.ModuleType:
    import fcntl

    def locking(fd: int, mode: int, length: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    module = types.ModuleType("msvcrt")
    module.__dict__.update(locking=locking, LK_NBLCK=2)
    return module


def _restrict_event_loops() -> None:
    """Take the methods from the event loop that the one of Windows does not implement."""
    from asyncio.unix_events import _UnixSelectorEventLoop as Loop

    def missing(self: object, *arguments: object, **options: object) -> None:
        raise NotImplementedError

    for name in ("add_signal_handler", "add_reader", "add_writer", "connect_read_pipe"):
        setattr(Loop, name, missing)


if "OTTLA_HIDES" in os.environ:
    install(**json.loads(os.environ["OTTLA_HIDES"]))
