"""The whole surface as one route table, one module per API family.

Not here: sockets, frames and the order of replies (`server`), or any rule of Kafka (below).
Start reading at `routes.py`: what a handler is given; then `replies.py`: what it may answer.
"""
