"""Nodes: their parts and services, and the order in which these start and stop.

What is here: the composition root (`build.py`), the literal list of services (`services.py`),
the handle of a running node (`handle.py`), and the thin services that connect the packages below:
the image loader, the snapshot writer, the lifecycle of a broker. Kafka's rules are not here but in
those packages.

Start reading at `services.py`, then `build.py`.
"""
