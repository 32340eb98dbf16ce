"""A Spark home without pyspark's archive, so that Spark's Python processes start fast.

Spark puts ``python/lib/pyspark.zip`` of its home first in the path of every Python process that it
starts. Python compiles anew what it imports from an archive: a second of processor time for each
process, and the first query of a session starts half a dozen. A stream's reader has ten seconds to
start, by no setting of Spark's, and on a machine that is busy this second can take longer. The same
modules are installed as files, compiled already: a home that links to all but ``python`` leaves the
choice to Python, which takes those.
"""

import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_HOME: Final = "SPARK_HOME"
_PYTHON: Final = "PYSPARK_PYTHON"
_LINKED: Final = ("bin", "jars", "sbin")


def link_home(directory: Path) -> Path:
    """Make ``directory`` a home of the Spark that is installed, and return it. Twice is fine.

    It has to be there as long as any Spark that was started from it.

    Raises:
        OSError: it cannot be made.
    """
    found = find_spec("pyspark")
    assert found is not None, "pyspark is installed"
    assert found.origin is not None
    installed = Path(found.origin).parent
    directory.mkdir(parents=True, exist_ok=True)
    for name in _LINKED:
        link = directory / name
        if link.is_symlink() and link.readlink() != installed / name:  # of a pyspark before this
            link.unlink()
        with suppress(FileExistsError):
            link.symlink_to(installed / name)
    return directory


def use_installed_pyspark(directory: Path) -> None:
    """Have the next Spark of this process start from ``directory``, and its workers run this Python

    Who has chosen a Spark or a Python by the environment keeps it: that Python may have no pyspark
    but the archive's. Where the directory cannot be made, Spark starts from where it is installed.
    """
    if _HOME in os.environ or os.environ.setdefault(_PYTHON, sys.executable) != sys.executable:
        return
    with suppress(OSError):
        os.environ[_HOME] = str(link_home(directory))
