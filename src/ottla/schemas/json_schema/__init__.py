"""JSON Schema, drafts 4 to 2020-12: references, canonical text, and a comparison of schema trees.

Start reading at `schema.py`. The comparison follows Confluent's rules and names of differences.
Patterns are never run by a backtracking engine.
"""
