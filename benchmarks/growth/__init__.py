"""How Ottla and Apache Kafka change as the number of partitions, connections, groups, ... grows.

`dimensions.py` measures one size on one broker, `saved.py` keeps what was measured so that a run
can be resumed, `drawing.py` draws a figure as SVG, and `page.py` writes docs/growth.md.
"""
