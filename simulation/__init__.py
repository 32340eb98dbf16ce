"""The product's code in a simulation: virtual time, disks and networks with seeded faults.

Not part of the wheel, and never imported by the product. Start reading at `loop.py`
and `simulation.py`.
"""
