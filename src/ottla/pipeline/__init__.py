"""What programs import: Spark sessions with topics, tables, views and audits.

    from ottla.pipeline import register_views, run_table

A name is loaded on first use, because each needs another part of Spark. The code is in
`ottla.spark` and `ottla.tables`. The modules of this package have the same names, one subject each.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.pipeline.checks import audit as audit
    from ottla.pipeline.lakehouse import settings_for as settings_for
    from ottla.pipeline.spark_home import use_installed_pyspark as use_installed_pyspark
    from ottla.pipeline.tables import load_job as load_job
    from ottla.pipeline.tables import run_table as run_table
    from ottla.pipeline.views import register_views as register_views

_MODULES: Final = {
    "audit": "checks",
    "load_job": "tables",
    "register_views": "views",
    "run_table": "tables",
    "settings_for": "lakehouse",
    "use_installed_pyspark": "spark_home",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
