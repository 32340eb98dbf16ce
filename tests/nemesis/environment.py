"""The nodes' environment: a disk that can fill up or fail, and a clock that can jump.

A disk is a small tmpfs at the node's directory, where mounting is permitted. The rest is done by
`shim.c`, loaded into the node's process, where there is a C compiler. What is missing is reported,
and the faults that need it are not offered.
"""

import errno
import shutil
import struct
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

SHIM = Path(__file__).with_name("shim.c")
DISK_BYTES = 32 << 20
_CONTROL = struct.Struct("<iiiiq")


@dataclass(frozen=True)
class NodeEnvironment:
    """One cluster's environment. ``library`` None: no shim; ``has_disks``: tmpfs are mounted."""

    root: Path
    library: Path | None
    has_disks: bool

    def environment(self, node_id: int) -> dict[str, str]:
        """Return the environment variables of a node's process."""
        if self.library is None:
            return {}
        return {
            "LD_PRELOAD": str(self.library),
            "NEMESIS_CONTROL": str(self._control(node_id)),
            "NEMESIS_DATA": str(self.data(node_id)),
        }

    def _control(self, node_id: int) -> Path:
        return self.root / f"control-{node_id}"

    def data(self, node_id: int) -> Path:
        return self.root / f"node-{node_id}" / "data"

    # -- what can be done ----------------------------------------------------------

    def heal(self, node_id: int) -> None:
        """Repair disk and clock, and remove what filled the disk."""
        self._set(node_id)
        self._ballast(node_id).unlink(missing_ok=True)

    def fail_writes(self, node_id: int, error: int) -> None:
        self._set(node_id, write_errno=error)

    def fail_syncs(self, node_id: int, error: int) -> None:
        self._set(node_id, sync_errno=error)

    def slow_syncs(self, node_id: int, milliseconds: int) -> None:
        self._set(node_id, sync_delay_ms=milliseconds)

    def set_clock_ahead(self, node_id: int, milliseconds: int) -> None:
        self._set(node_id, clock_ahead_ms=milliseconds)

    def fill(self, node_id: int) -> None:
        """Leave no byte free on a node's disk."""
        with self._ballast(node_id).open("wb", buffering=0) as ballast:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while ballast.write(bytes(size)):
                        pass
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def _ballast(self, node_id: int) -> Path:
        return self.root / f"node-{node_id}" / "ballast"

    def _set(
        self,
        node_id: int,
        *,
        write_errno: int = 0,
        sync_errno: int = 0,
        sync_delay_ms: int = 0,
        clock_ahead_ms: int = 0,
    ) -> None:
        if self.library is not None:
            with self._control(node_id).open("r+b", buffering=0) as control:
                control.write(
                    _CONTROL.pack(write_errno, sync_errno, sync_delay_ms, 0, clock_ahead_ms)
                )


def prepare(root: Path, nodes: int, stack: ExitStack) -> NodeEnvironment:
    """Prepare the environment of a cluster in ``root``; ``stack`` removes it again."""
    root.mkdir(parents=True, exist_ok=True)
    library = _compile(root)
    for node_id in range(1, nodes + 1):
        (root / f"control-{node_id}").write_bytes(bytes(_CONTROL.size))
    return NodeEnvironment(root, library, _mount_all(root, nodes, stack))


def _compile(root: Path) -> Path | None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    made = root / "shim.so"
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(made), str(SHIM), "-ldl"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    return made if done.returncode == 0 else None


def _mount_all(root: Path, nodes: int, stack: ExitStack) -> bool:
    for node_id in range(1, nodes + 1):
        at = root / f"node-{node_id}"
        at.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "nemesis", str(at)]
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=10)
        except FileNotFoundError:
            return False
        if done.returncode != 0:
            return False
        stack.callback(_unmount, at)
    return True


def _unmount(at: Path) -> None:
    subprocess.run(["umount", "--lazy", str(at)], capture_output=True, check=False, timeout=10)
