"""Confluent's names of differences between JSON Schemas: which are harmless, and our messages.

Differences that are harmless under both policies and have no other effect are not listed.
"""

from typing import Final

from ottla.schemas.contract import Difference

# Harmless under the policy LENIENT only.
LENIENT: Final = frozenset(
    {
        "ADDITIONAL_PROPERTIES_NARROWED",
        "ADDITIONAL_PROPERTIES_REMOVED",
        "UNEVALUATED_PROPERTIES_NARROWED",
        "UNEVALUATED_PROPERTIES_REMOVED",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    }
)
# Harmless under every policy; named here because comparisons come across them by rule.
HARMLESS: Final = frozenset(
    {
        *(f"MAX_{noun}_INCREASED" for noun in ("LENGTH", "PROPERTIES", "ITEMS", "CONTAINS")),
        *(f"MIN_{noun}_DECREASED" for noun in ("LENGTH", "PROPERTIES", "ITEMS", "CONTAINS")),
        *(
            f"{end}_{noun}_REMOVED"
            for end in ("MAX", "MIN")
            for noun in ("LENGTH", "PROPERTIES", "ITEMS", "CONTAINS")
        ),
        "MAXIMUM_INCREASED",
        "MAXIMUM_REMOVED",
        "MINIMUM_DECREASED",
        "MINIMUM_REMOVED",
        "EXCLUSIVE_MAXIMUM_INCREASED",
        "EXCLUSIVE_MAXIMUM_REMOVED",
        "EXCLUSIVE_MINIMUM_DECREASED",
        "EXCLUSIVE_MINIMUM_REMOVED",
        "MULTIPLE_OF_REDUCED",
        "MULTIPLE_OF_REMOVED",
        "PATTERN_REMOVED",
        "UNIQUE_ITEMS_REMOVED",
        "SCHEMA_REMOVED",
        "TYPE_EXTENDED",
        "ENUM_ARRAY_EXTENDED",
        "COMBINED_TYPE_EXTENDED",
        "PRODUCT_TYPE_NARROWED",
        "SUM_TYPE_EXTENDED",
        "NOT_TYPE_NARROWED",
        "REQUIRED_ATTRIBUTE_REMOVED",
        "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED",
        "DEPENDENCY_ARRAY_NARROWED",
        "DEPENDENCY_ARRAY_REMOVED",
        "DEPENDENCY_SCHEMA_REMOVED",
        *(
            f"{noun}_{change}"
            for change in ("ADDED", "EXTENDED")
            for noun in (
                "ADDITIONAL_PROPERTIES",
                "ADDITIONAL_ITEMS",
                "UNEVALUATED_PROPERTIES",
                "UNEVALUATED_ITEMS",
            )
        ),
        "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL",
        "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    }
)
_ONE_SIDED: Final = ("Keyword '{}' is set in only one of both, the ", " schema and the ")
_FEWER: Final = ("'{}' allows fewer alternatives in the ", " schema than in the ")
_MORE: Final = ("'{}' demands more in the ", " schema than in the ")
_DIFFERENT_TYPE: Final = ("'{}' has another type in the ", " schema than in the ")
_OPEN: Final = (
    "The ",
    " schema restricts '{}', where any value was allowed by the open content model of the ",
)
_GREATER: Final = ("Limit '{}' is greater in the ", " schema than in the ")
_SPECIAL: Final[dict[str, tuple[str, ...]]] = {
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": (
        "The ",
        " schema requires '{}', which has no place in the ",
    ),
    "TYPE_CHANGED": _DIFFERENT_TYPE,
    "TYPE_NARROWED": _DIFFERENT_TYPE,
    "COMBINED_TYPE_CHANGED": _DIFFERENT_TYPE,
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": _DIFFERENT_TYPE,
    "ENUM_ARRAY_CHANGED": _DIFFERENT_TYPE,
    "SUM_TYPE_NARROWED": _FEWER,
    "ENUM_ARRAY_NARROWED": _FEWER,
    "DEPENDENCY_ARRAY_EXTENDED": _MORE,
    "PRODUCT_TYPE_EXTENDED": _MORE,
    "NOT_TYPE_EXTENDED": _MORE,
    "MULTIPLE_OF_EXPANDED": _GREATER,
}
_BY_ENDING: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("_ADDED_TO_OPEN_CONTENT_MODEL", _OPEN),
    (
        "_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        ("The closed content model of the ", " schema forbids '{}', which may occur in the "),
    ),
    (
        "_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        (
            "No pattern of the partially open content model of the ",
            " schema allows '{}', which may occur in the ",
        ),
    ),
    (
        "_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        (
            "The ",
            " schema has '{}', which no pattern covers in the partially open content model of the ",
        ),
    ),
    ("_INCREASED", _GREATER),
    ("_DECREASED", ("Limit '{}' is smaller in the ", " schema than in the ")),
    ("_NARROWED", _FEWER),
    ("_CHANGED", ("'{}' has another value in the ", " schema than in the ")),
    ("_ADDED", _ONE_SIDED),
    ("_REMOVED", _ONE_SIDED),
)


def is_harmless(rule: str, policy: str) -> bool:
    """Return whether a difference leaves data readable under ``policy``."""
    return rule in HARMLESS or (policy == "LENIENT" and rule in LENIENT)


def difference(rule: str, path: str) -> Difference:
    """Return the difference with a message in the form of Confluent's registry, in our words."""
    parts = _SPECIAL.get(rule)
    if rule != "SCHEMA_ADDED" and parts is None:
        parts = next((message for ending, message in _BY_ENDING if rule.endswith(ending)), None)
    texts = [text.replace("{}", path) for text in parts or ("",)]
    if len(texts) == 2:
        texts.append(" schema")
    texts[0] = f'{{errorType:"{rule}", description:"{texts[0]}'
    texts[-1] += '"}'
    return Difference(rule, path, rule.replace("_", " ").capitalize(), tuple(texts))
