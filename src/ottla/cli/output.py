"""The forms in which a command prints an answer."""

import enum


class Output(enum.StrEnum):
    """How to print an answer."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
