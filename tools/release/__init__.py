"""``make release-check``: everything that a release needs, short of uploading it.

Every step runs, even if an earlier one has failed, and all problems are listed in the end. A step
that could not be made, because a service does not answer, is "not checked", which is not "ok".
Start reading at `tools.release.__main__.STEPS`.
"""
