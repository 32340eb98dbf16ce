"""A Spark home without pyspark's archive, unless the environment sets one."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from ottla.spark.spark_home import link_home, use_installed_pyspark

INSTALLED = Path(pyspark.__file__).parent


@pytest.fixture
def environ(monkeypatch):
    """An environment without variables of Spark."""
    names = ("SPARK_HOME", "PYSPARK_PYTHON", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
    for name in names:
        monkeypatch.setenv(name, "")  # so that monkeypatch restores it
        monkeypatch.delenv(name)
    return os.environ


def test_linked_home_has_spark_but_no_pyspark_archive(tmp_path):
    home = link_home(tmp_path / "state" / "spark")
    assert {each.name: each.resolve() for each in home.iterdir()} == {
        name: INSTALLED / name for name in ("bin", "jars", "sbin")
    }
    assert link_home(home) == home


def test_links_follow_a_reinstalled_pyspark(tmp_path):
    (tmp_path / "jars").symlink_to("/nowhere/jars")
    link_home(tmp_path)
    assert (tmp_path / "jars").resolve() == INSTALLED / "jars"


def test_workers_use_this_python_and_the_installed_modules(environ, tmp_path):
    use_installed_pyspark(tmp_path)
    assert (environ["SPARK_HOME"], environ["PYSPARK_PYTHON"]) == (str(tmp_path), sys.executable)
    path = f"{tmp_path}/python/lib/pyspark.zip"
    found = subprocess.run(
        [sys.executable, "-c", "import pyspark; print(pyspark.__file__)"],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert Path(found.stdout.strip()).parent == INSTALLED


@pytest.mark.parametrize("chosen", [{"SPARK_HOME": "/opt/spark"}, {"PYSPARK_PYTHON": "/opt/py"}])
def test_environment_variables_are_kept(environ, tmp_path, chosen):
    environ.update(chosen)
    use_installed_pyspark(tmp_path)
    assert environ.get("SPARK_HOME") == chosen.get("SPARK_HOME")
    assert environ.get("PYSPARK_PYTHON", "/opt/py") in (sys.executable, "/opt/py")


def test_unwritable_home_falls_back_to_the_installation(environ, tmp_path):
    (tmp_path / "file").touch()
    use_installed_pyspark(tmp_path / "file")
    assert "SPARK_HOME" not in environ


def test_modules_are_compiled_once_though_the_environment_forbids_it(environ, tmp_path):
    environ["PYTHONDONTWRITEBYTECODE"] = "1"
    use_installed_pyspark(tmp_path / "home")
    done = subprocess.run([sys.executable, "-c", "import this"], capture_output=True)
    assert done.returncode == 0
    assert list((tmp_path / "home" / "bytecode").rglob("this.*.pyc"))


def test_bytecode_stays_where_the_environment_puts_it(environ, tmp_path):
    use_installed_pyspark(tmp_path / "one")
    assert "PYTHONPYCACHEPREFIX" not in environ
    del environ["SPARK_HOME"]
    environ.update(PYTHONDONTWRITEBYTECODE="1", PYTHONPYCACHEPREFIX="/chosen")
    use_installed_pyspark(tmp_path / "two")
    assert environ["PYTHONPYCACHEPREFIX"] == "/chosen"
