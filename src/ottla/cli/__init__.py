"""The ``ottla`` command, one module per noun.

What is here: reading arguments and files, printing, exit codes. What is not here: anything a
command does; that is asked of a node, or of `ottla.node`.

Start reading at `main.py`.
"""
