"""Run the product as if on macOS or Windows: what these systems lack is hidden from it.

`site/sitecustomize.py` hides it in every Python process below a test run (``OTTLA_HIDES``), for the
modules of the product only; the standard library, pytest and the tests keep all of Linux.
`missing_names.py` says what is missing, from the type stubs of the standard library.
"""
