"""Share partitions led here: which member has acquired which records, and sessions (KIP-932).

The members of a share group and the stored state are in `coordinators`. Start with
`ottla.sharing.acquisition`, the rules of one share partition; `ottla.sharing.sessions` has those of
ShareFetch sessions; `ottla.sharing.service` drives both.
"""
