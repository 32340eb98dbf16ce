"""Audits whole topics."""

from ottla.spark.checks import PartitionReport, Report, audit

__all__ = ["PartitionReport", "Report", "audit"]
