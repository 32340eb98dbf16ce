"""Compile the modules that have a compiled form.

Each is plain Python that Cython also understands. Without a C compiler the extension is
skipped (``optional``) and Python runs the ``.py`` file instead. Modules whose names start with
``OTTLA_SKIP_COMPILED`` are skipped, too (`make run` needs none of `ottla.formats`). With
``OTTLA_PURE=1`` none is compiled, and the wheel is tagged for every machine (`make dist`).
"""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

# module -> source: the only list of compiled modules.
COMPILED: dict[str, str] = {
    "ottla.formats.batch_decoder": "src/ottla/formats/batch_decoder.py",
    "ottla.api.groups.commit_fast_path": "src/ottla/api/groups/commit_fast_path.py",
    "ottla.api.produce.fast_path": "src/ottla/api/produce/fast_path.py",
    "ottla.coordinators.groups.offsets.commit_batch": (
        "src/ottla/coordinators/groups/offsets/commit_batch.py"
    ),
    "ottla.replication.leading.appending": "src/ottla/replication/leading/appending.py",
    "ottla.formats.batch_encoder": "src/ottla/formats/batch_encoder.py",
    "ottla.protocol.records.walker": "src/ottla/protocol/records/walker.py",
    "ottla.server.receive_buffer": "src/ottla/server/receive_buffer.py",
    "ottla.storage.cleaner.batch_run": "src/ottla/storage/cleaner/batch_run.py",
    "ottla.storage.log.log_tail": "src/ottla/storage/log/log_tail.py",
    "ottla.storage.log.segment_tail": "src/ottla/storage/log/segment_tail.py",
    "ottla.storage.cleaner.offset_map": "src/ottla/storage/cleaner/offset_map.py",
    "ottla.storage.cleaner.record_filter": "src/ottla/storage/cleaner/record_filter.py",
}

CORES = os.cpu_count() or 1
SKIPPED = os.environ.get("OTTLA_SKIP_COMPILED") or None
# No debugging symbols: they are four fifths of a library.
FLAGS = ["-O3", "-g0"]


def main() -> None:
    if os.environ.get("OTTLA_PURE") == "1":
        setup()
        return
    extensions = cythonize(
        [
            Extension(name, [source], extra_compile_args=FLAGS)
            for name, source in COMPILED.items()
            if SKIPPED is None or not name.startswith(SKIPPED)
        ],
        language_level=3,
        build_dir="build/cython",
        nthreads=CORES,
    )
    for extension in extensions:
        extension.optional = True  # cythonize does not keep it
    setup(ext_modules=extensions, options={"build_ext": {"parallel": CORES}})


if __name__ == "__main__":  # the worker processes of cythonize import this file, too
    main()
