"""Lets Spark"s Python processes start fast."""

from ottla.spark.spark_home import use_installed_pyspark

__all__ = ["use_installed_pyspark"]
