"""The settings of a Spark session for Delta and Iceberg tables."""

from ottla.tables.lakehouse import NoRuntime, settings_for, unavailable

__all__ = ["NoRuntime", "settings_for", "unavailable"]
