"""A driver process to be killed: ``driver_process.py DIRECTORY`` streams into a table there.

The options of the source are in ``options.json`` of the directory.
"""

import json
import sys
from pathlib import Path

from source_table import Table
from spark_session import build_session


def main() -> None:
    root = Path(sys.argv[1])
    options = json.loads((root / "options.json").read_text())
    table = Table(build_session(root / "warehouse"), root)
    table.stream(options, processingTime="100 milliseconds").awaitTermination()


if __name__ == "__main__":
    main()
