"""Committed offsets: the state, the rules of commit, fetch, delete and expiry, and the bytes."""
