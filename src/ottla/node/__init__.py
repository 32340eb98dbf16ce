"""The node: which services make one up, in which order they start and stop.

What is here: the composition root (`build.py`), the literal list of services (`services.py`),
what a running node offers whoever started it (`handle.py`), and the thin services that tie
rooms together: the image loader, the snapshot writer, a broker's life with its controller.
What is not here: any rule of Kafka's; those are in the rooms below.

Start reading at `services.py`, then `build.py`.
"""
