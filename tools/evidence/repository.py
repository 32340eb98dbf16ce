"""What git knows: the current commit, and which files differ from another one."""

import subprocess
from pathlib import Path


def head(root: Path) -> str:
    """Return the current commit."""
    return _git(root, "rev-parse", "HEAD").strip()


def changed_since(root: Path, commit: str, paths: tuple[str, ...]) -> list[str] | None:
    """Return the files below ``paths`` that differ from ``commit``, uncommitted ones included.

    None means that the history has no such commit.
    """
    if subprocess.run(
        ["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=root, capture_output=True
    ).returncode:
        return None
    differing = _git(root, "diff", "--name-only", commit, "--", *paths).splitlines()
    untracked = _git(root, "ls-files", "--others", "--exclude-standard", "--", *paths)
    return sorted({*differing, *untracked.splitlines()})


def uncommitted(root: Path, paths: tuple[str, ...]) -> list[str]:
    """Return the files below ``paths`` that differ from the current commit."""
    return changed_since(root, "HEAD", paths) or []


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout
