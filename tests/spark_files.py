"""The files of tests that start Spark or use the session of their worker."""

SPARK = {
    f"tests/pipeline/test_{name}.py"
    for name in (
        "catalog_tables",
        "killed_driver",
        "pipeline_checks",
        "pipeline_run",
        "sink_spark",
        "source_spark",
        "spark_security",
        "tables_application",
        "tables_command",
        "tables_spark",
        "tiered_backfill",
    )
}
