"""The directories of a node: formatting, restoring, and errors at the start."""
