"""KRaft: the metadata quorum's pure core, and the driver that acts for it.

Not here: what the records mean (`metadata`), what may change (`controller`). Start
reading at `core/events.py` and `core/effects.py`, then `core/machine.py`; how effects are
carried out is in `driver.py`, the bytes on disk in `metadata_log.py` and `snapshots.py`.
"""
