"""How Ottla and Apache Kafka change as the number of partitions, connections, groups, ... grows.

`plan.py` says what to measure in which order, `dimensions.py` measures sizes on one broker,
`quietness.py` watches the rest of the machine meanwhile, `saved.py` keeps what was measured so that
a run can be resumed, `drawing.py` draws a figure as SVG, and `page.py` writes docs/growth.md.
"""
