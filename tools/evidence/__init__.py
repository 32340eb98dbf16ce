"""The ledger of proofs: which promise was proven by which command, at which commit.

``evidence/proofs.toml`` declares the proofs, ``evidence/runs/NAME.toml`` holds the last run of
each. A proof is stale once a path that it depends on has changed since its run. Start reading at
`tools.evidence.status.judge`.
"""
