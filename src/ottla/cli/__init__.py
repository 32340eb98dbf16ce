"""The ``ottla`` command, one module per noun.

The commands read arguments and files, print results and set exit codes. The work itself is done by
the cluster, through `ottla.client`, or by `ottla.node`.

Start reading at `main.py`.
"""
