"""Listeners, connections, dispatch, order of replies, throttling.

Not here: the meaning of requests (`api` and below). Start reading at `connection_state.py`, the
states of a connection, and `connection.py`, which acts on them; then `request_runner.py` and
`dispatch.py`: from a frame to its reply; `send_queue.py`: sending; `admission.py`: limits on
connections; `listener.py`: the service that holds them together.
"""
