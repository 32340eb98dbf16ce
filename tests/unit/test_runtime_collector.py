"""The settings of the garbage collector, tested in a separate process: they are global."""

import subprocess
import sys

from tests.patience import SECONDS_MAX

CODE = """
import gc
from ottla.runtime.collector import THRESHOLDS, hold, settle
hold()
assert not gc.isenabled()
kept = [[] for _ in range(1000)]
settle()
assert gc.isenabled() and gc.get_threshold() == THRESHOLDS
assert gc.get_freeze_count() > 1000
assert not any(each is kept for each in gc.get_objects()), "set aside"
class Cycle: pass
one = Cycle(); one.self = one; del one
assert gc.collect() > 0, "garbage made later is still found"
"""


def test_settled_objects_are_exempt_and_later_cycles_are_collected() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True, timeout=SECONDS_MAX)
