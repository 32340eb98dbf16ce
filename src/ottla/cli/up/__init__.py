"""The local cluster of ``ottla up``: its plan, files, processes and settings."""
