"""Answers as plain values: what JSON can express."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Plain: TypeAlias = "str | int | float | bool | Sequence[Plain] | Mapping[str, Plain] | None"
Row: TypeAlias = Mapping[str, Plain]
Answer: TypeAlias = Sequence[Row] | Row
