"""Share partitions led here: which member holds which records, and who may ask (KIP-932).

Not the members of a share group, nor where its state is kept: those are coordinators. Start with
`ottla.sharing.acquisition`, the rules of one share partition; `ottla.sharing.sessions` are those
of ShareFetch sessions; `ottla.sharing.service` acts on both.
"""
