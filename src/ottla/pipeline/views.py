"""Registers topics as views of a Spark session."""

from ottla.spark.views import BadViews, register_views

__all__ = ["BadViews", "register_views"]
