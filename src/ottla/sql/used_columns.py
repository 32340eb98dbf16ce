"""Which columns a query can use: the fields of JSON values that need not be extracted. Pure.

A view extracts all its fields with one function, of which DuckDB drops none. So the view of a query
has only the fields that the query names. The names are those in DuckDB's syntax tree of the query;
with anything in it that may use columns without naming them (``*``, a row as a whole, a natural
join), or that is unknown here, the view has them all.
"""

from collections.abc import Mapping
from typing import Final

# Kinds of nodes that use no columns but those that they name.
_EXPRESSIONS: Final = frozenset({
    "BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT",
    "FUNCTION", "LAMBDA", "OPERATOR", "SUBQUERY", "TYPE", "WINDOW",
})  # fmt: skip
_OTHERS: Final = frozenset({
    "ASCENDING", "BASE_TABLE", "DESCENDING", "DISTINCT_MODIFIER", "EMPTY", "JOIN", "LIMIT_MODIFIER",
    "ORDER_DEFAULT", "ORDER_MODIFIER", "SELECT_NODE", "SET_OPERATION_NODE", "SUBQUERY",
})  # fmt: skip
_JOINS: Final = frozenset({"REGULAR", "CROSS", "ASOF"})


def columns_of(tree: Mapping[str, object]) -> frozenset[str] | None:
    """Return the names of columns in a syntax tree, in lower case; None: it may use any column."""
    if tree.get("error") is not False:
        return None
    names: set[str] = set()
    rows: set[str] = set()  # names that may be those of rows as a whole
    tables: set[str] = set()
    pending: list[object] = [tree.get("statements")]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif isinstance(node, Mapping):
            if not _is_known(node):
                return None
            path = _texts(node, "column_names")
            names |= {*path, *_texts(node, "using_columns")}
            rows |= {*path[-1:]}
            if "class" not in node:
                tables |= {str(node.get(each)).lower() for each in ("alias", "table_name")}
            pending += node.values()
    return None if rows & tables else frozenset(names)  # ``select o from orders o`` is a row


def _is_known(node: Mapping[str, object]) -> bool:
    kind = node.get("class")
    if kind is not None:
        return kind in _EXPRESSIONS
    if node.get("column_name_alias"):  # other names, by position
        return False
    if "ref_type" in node and node["ref_type"] not in _JOINS:
        return False
    return not isinstance(node.get("type"), str) or node["type"] in _OTHERS


def _texts(node: Mapping[str, object], key: str) -> list[str]:
    texts = node.get(key)
    return [str(each).lower() for each in texts] if isinstance(texts, list) else []
