"""KRaft: the metadata quorum as a pure core, and the driver that performs its effects.

Not here: the meaning of the records (`metadata`) and which records to write (`controller`). Start
reading at `core/events.py` and `core/effects.py`, then `core/machine.py`; `driver.py` performs the
effects, and `metadata_log.py` and `snapshots.py` hold the bytes on disk.
"""
