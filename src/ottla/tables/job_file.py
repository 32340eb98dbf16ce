"""Reads the declaration of a table from a file. Needs no Spark, so that errors come at once."""

from pathlib import Path

from msgspec import structs

from ottla.tables.job import BadJob, TableJob, parse_job


def load_job(file: str | Path) -> TableJob:
    """Read a job from YAML; file names in it are relative to the file.

    Raises:
        BadJob: it cannot be read, or is invalid.
    """
    import yaml

    where = Path(file)
    try:
        declared = yaml.safe_load(where.read_text())
    except OSError as error:
        raise BadJob(f"{where}: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadJob(f"{where}: not YAML: {error}") from error
    try:
        return _beside(parse_job(declared), where.resolve().parent)
    except BadJob as error:
        raise BadJob(f"{where}: {error}") from error


def _beside(job: TableJob, root: Path) -> TableJob:
    """Resolve relative file names against ``root``."""

    def absolute(path: str | None) -> str | None:
        if path is None or "://" in path or path.startswith("file:"):
            return path
        return str(root / path)

    table = structs.replace(
        job.table, path=absolute(job.table.path), warehouse=absolute(job.table.warehouse)
    )
    value = structs.replace(job.value, schema_file=absolute(job.value.schema_file))
    return structs.replace(job, table=table, value=value, checkpoint=absolute(job.checkpoint))
