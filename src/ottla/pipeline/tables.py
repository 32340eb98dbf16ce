"""Writes topics to tables, exactly once."""

from ottla.tables.job_file import load_job
from ottla.tables.table_writer import run_table, session_settings, start_table

__all__ = ["load_job", "run_table", "session_settings", "start_table"]
