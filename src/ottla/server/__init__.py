"""Listeners, connections, dispatch, order of replies, throttling.

Not here: what a request means (`api` and below). Start reading at `connection.py`, the life of
a connection; then `dispatch.py`: from a frame to its reply; `send_queue.py`: how bytes leave;
`admission.py`: who may connect; `listener.py`: the service that holds it together.
"""
