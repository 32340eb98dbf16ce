"""Produce: from a request to the offsets of its batches. Start with `handler.py`.

    small and plain    `fast_path.py`: bytes in; a reply, a pending one (acks=all), or None
    any other          `handler.py`: `request.py` parses, `work.py` says how expensive it is,
                       `transaction.py` what has to be verified; `reply.py` answers

A request is parsed by one of both: the fast path declines before it has changed anything.
"""
