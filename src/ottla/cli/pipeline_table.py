"""``ottla pipeline table``: run one declared table in its own Spark session."""

import signal
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from ottla.cli.failures import fail
from ottla.cli.options import say
from ottla.cli.rendering import Row
from ottla.pipeline.runner import PipelineFailed, cause_of, check_spark, table_session


def run_declared(file: Path, master: str, settings: Mapping[str, str]) -> Row:
    """Run the table that a file declares, and return its declaration."""
    try:
        check_spark()
    except PipelineFailed as error:
        fail(str(error))
    from pyspark.errors import PySparkException

    from ottla.pipeline.table_job import BadJob
    from ottla.pipeline.tables import load_job, run_table

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        job = load_job(file)
        say(f"{job.topic}: starting Spark ({master})")
        with (
            TemporaryDirectory(prefix="ottla-spark-") as home,
            table_session(f"table {job.topic}", master, settings, Path(home)) as session,
        ):
            run_table(session, job)
    except KeyboardInterrupt:
        say("stopped; the next run continues from the last finished batch")
    except (BadJob, PipelineFailed) as error:
        fail(str(error))
    except PySparkException as error:
        fail(f"{job.topic}: {cause_of(str(error))}")
    finally:
        signal.signal(signal.SIGTERM, before)
    return {"topic": job.topic, "table": job.table.name or job.table.path}
