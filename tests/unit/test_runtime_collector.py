"""The collector's rest, tried in a process of its own: it is one per process."""

import subprocess
import sys

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


def test_what_is_there_is_set_aside_and_what_comes_is_collected() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True, timeout=60)
