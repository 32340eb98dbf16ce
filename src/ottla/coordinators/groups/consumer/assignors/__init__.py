"""Who shall read which partition: the assignors of consumer groups (KIP-848), pure.

An assignor sees members, what they subscribe to and what they were to have so far, and returns
what they shall have. Start reading at `spec.py`.
"""
