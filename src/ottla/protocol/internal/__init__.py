"""Records of internal topics and of the metadata log, and files of the quorum.

Declared like messages (`ottla.protocol.schema`) and encoded by the same codec. Start reading at
`metadata_records.py` for the metadata log, `group_records.py` for ``__consumer_offsets``,
`framing.py` for the prefix of each record.
"""
