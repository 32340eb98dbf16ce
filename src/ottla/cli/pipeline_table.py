"""``ottla pipeline table``: one declared table in a session of its own."""

from pathlib import Path

from ottla.cli.rendering import Row
from ottla.cli.settings_file import fail
from ottla.pipeline.runner import PipelineFailed, check_spark


def run_declared(file: Path, master: str) -> Row:
    """Run the table that a file declares; return what it was."""
    try:
        check_spark()
    except PipelineFailed as error:
        fail(str(error))
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from ottla.pipeline.table_job import BadJob
    from ottla.pipeline.tables import load_job, run_table

    try:
        job = load_job(file)
        session = (
            SparkSession.builder.master(master)
            .appName(f"table {job.topic}")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
        try:
            run_table(session, job)
        except KeyboardInterrupt:
            pass
        finally:
            session.stop()
    except BadJob as error:
        fail(str(error))
    except PySparkException as error:
        fail(f"{job.topic}: {str(error).strip().splitlines()[-1]}")
    return {"topic": job.topic, "table": job.table.name or job.table.path}
