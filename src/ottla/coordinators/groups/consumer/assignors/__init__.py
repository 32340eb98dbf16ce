"""The assignors of consumer groups (KIP-848): which member reads which partition. Pure.

An assignor gets the members, their subscriptions and current targets, and returns new targets.
Start reading at `spec.py`.
"""
