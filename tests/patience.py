"""How long a test waits for something that a quiet machine does in moments.

This is no promise of Ottla: it only ends a test that hangs. It leaves room for a machine with
several times more work than cores. A limit that is a promise has its own constant, in the test that
asserts it. ``timeout`` in pyproject.toml is longer, so that a test ends with its own message.
"""

SECONDS_MAX = 240.0
