"""Bounds of what clients send: every parser raises ``InvalidSchema`` beyond them.

They are far above real schemas and keep a call within about a second: no recursion limit of Python
is reached, and no text makes a parser or a comparison work longer than linear in its size.
"""

from collections.abc import Mapping
from typing import Final

from ottla.schemas.contract import InvalidSchema

# Characters of one schema. Confluent's registry accepts what fits into a record of its topic.
TEXT_CHARACTERS_MAX: Final = 2 * 1024 * 1024
# Characters of a schema and all its references together.
TOTAL_CHARACTERS_MAX: Final = 4 * 1024 * 1024
# Referenced schemas, direct and indirect.
REFERENCES_MAX: Final = 1_000
# Levels of nesting (records in records, brackets in brackets). Each level takes up to four frames
# of a recursive parser or printer; Python allows 1,000 frames.
DEPTH_MAX: Final = 100
# Pairs of types that a comparison looks at (about a second of work), and differences it reports.
PAIRS_MAX: Final = 100_000
DIFFERENCES_MAX: Final = 1_000


def check_sizes(text: str, references: Mapping[str, str]) -> None:
    """Check the sizes of a schema and its references. Raises InvalidSchema."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise InvalidSchema(
            f"The schema has {len(text)} characters; at most {TEXT_CHARACTERS_MAX} are allowed."
        )
    if len(references) > REFERENCES_MAX:
        raise InvalidSchema(
            f"The schema has {len(references)} references; at most {REFERENCES_MAX} are allowed."
        )
    if (total := len(text) + sum(map(len, references.values()))) > TOTAL_CHARACTERS_MAX:
        raise InvalidSchema(
            f"The schema and its references have {total} characters; at most"
            f" {TOTAL_CHARACTERS_MAX} are allowed."
        )
