"""Programs import from `ottla.pipeline`: from the package, or from the modules of one subject."""

import importlib

import pytest

import ottla.pipeline


@pytest.mark.parametrize("name", ottla.pipeline._MODULES)
def test_public_name_is_loaded_on_first_use(name: str) -> None:
    assert callable(getattr(ottla.pipeline, name))


def test_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'run_tables'"):
        _ = ottla.pipeline.run_tables


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("checks", "audit"),
        ("lakehouse", "settings_for"),
        ("spark_home", "use_installed_pyspark"),
        ("tables", "load_job"),
        ("tables", "run_table"),
        ("views", "register_views"),
    ],
)
def test_module_path_leads_to_the_same_function(module: str, name: str) -> None:
    by_path = getattr(importlib.import_module(f"ottla.pipeline.{module}"), name)
    assert by_path is getattr(ottla.pipeline, name)
