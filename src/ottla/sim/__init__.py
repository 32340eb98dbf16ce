"""The same code in a simulated world: virtual time, a disk that forgets, a network that lies.

Not here: anything production code may import. Start reading at `loop.py` and `world.py`.
"""
