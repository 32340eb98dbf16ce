"""A Spark home without pyspark's archive, so that Spark's Python processes start fast.

Spark puts ``python/lib/pyspark.zip`` of its home first in the path of every Python process that it
starts. Python recompiles modules imported from an archive: a second of processor time per process,
and the first query of a session starts half a dozen. The reader of a stream must start within ten
seconds (not configurable), and on a busy machine this second can take longer. The same modules are
installed as files, already compiled: with a home that links everything but ``python``, Python
imports those.

Many container images set ``PYTHONDONTWRITEBYTECODE``: then no module is ever compiled for the next
process. In this case the compiled modules of Spark's processes are kept in the home.
"""

import os
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_HOME: Final = "SPARK_HOME"
_PYTHON: Final = "PYSPARK_PYTHON"
_NO_BYTECODE: Final = "PYTHONDONTWRITEBYTECODE"
_BYTECODE: Final = "PYTHONPYCACHEPREFIX"
_IMPORTS: Final = (
    "import pyspark.worker, pyspark.daemon, ottla.spark.stream_reader, ottla.spark.sink_writers;"
    "import pyspark.sql.streaming.python_streaming_source_runner"
)
_LINKED: Final = ("bin", "jars", "sbin")


def warm_imports() -> "subprocess.Popen[bytes] | None":
    """Import in another process what Spark's Python processes import, while the JVM starts.

    They must start within ten seconds. Afterwards the modules are compiled, and their files are in
    the page cache. Returns the process, to be waited for; None if it cannot be started.
    """
    with suppress(OSError):
        return subprocess.Popen(  # noqa: S603 - the Python that Spark starts, too
            [os.environ.get(_PYTHON, sys.executable), "-c", _IMPORTS],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    return None


def link_home(directory: Path) -> Path:
    """Make ``directory`` a Spark home of the installed Spark, and return it. Idempotent.

    It must exist as long as any Spark that was started from it.

    Raises:
        OSError: it cannot be created.
    """
    found = find_spec("pyspark")
    assert found is not None, "pyspark is installed"
    assert found.origin is not None
    installed = Path(found.origin).parent
    directory.mkdir(parents=True, exist_ok=True)
    for name in _LINKED:
        link = directory / name
        if link.is_symlink() and link.readlink() != installed / name:  # of an older pyspark
            link.unlink()
        with suppress(FileExistsError):
            link.symlink_to(installed / name)
    return directory


def use_installed_pyspark(directory: Path) -> None:
    """Start the next Spark of this process from ``directory``, with this Python for its workers.

    A Spark or Python chosen by environment variables is kept: that Python may have no pyspark but
    the archive. If the directory cannot be created, Spark starts from its installation. Compiled
    modules of processes started from now on are kept in the directory if they would be nowhere.
    """
    if _HOME in os.environ or os.environ.setdefault(_PYTHON, sys.executable) != sys.executable:
        return
    with suppress(OSError):
        os.environ[_HOME] = str(link_home(directory))
        if os.environ.pop(_NO_BYTECODE, "") and _BYTECODE not in os.environ:
            os.environ[_BYTECODE] = str(directory.resolve() / "bytecode")
