"""The output formats of a command's answer."""

import enum


class Output(enum.StrEnum):
    """Output format of an answer."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
