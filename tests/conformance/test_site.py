"""`make docs` builds the pages as a site, and a broken link fails it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.external


def build() -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "tools/site.py"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_site_is_built_with_search() -> None:
    done = build()
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.splitlines()[-1]).exists()
    site = ROOT / "build" / "site"
    assert (site / "docs" / "backup.html").exists()
    assert "quorum" in (site / "search" / "search_index.json").read_text()


def test_broken_link_fails() -> None:
    page = ROOT / "docs" / "broken-on-purpose.md"
    page.write_text("[nowhere](nowhere.md)\n")
    try:
        done = build()
    finally:
        page.unlink()
    assert done.returncode != 0 and "nowhere.md" in done.stderr
