"""The API surface in one table, and the handlers it names, one module per API family.

Not here: sockets, frames and the order of replies (`server`), or any rule of Kafka (below).
Start reading at `surface.py`: what is served; then `routes.py`: what a handler is given, and
`replies.py`: what it may answer.
"""
