"""Syntax trees: qualified names, and copies in which some nodes are replaced. Pure."""

import ast
from collections.abc import Iterator

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# What replaces a node: one node for an expression, any number for a statement.
Replacements = dict[ast.AST, list[ast.AST]]


def rewrite(tree: ast.AST, replacements: Replacements) -> ast.AST:
    """Return a copy of a tree with some nodes replaced. A body that becomes empty gets `pass`."""
    return ast.fix_missing_locations(_copy(tree, replacements))


def _copy(tree: ast.AST, replacements: Replacements) -> ast.AST:
    fields = {}
    for name, value in ast.iter_fields(tree):
        if isinstance(value, list):
            nodes = [node for old in value for node in _replacement(old, replacements)]
            fields[name] = nodes or ([ast.Pass()] if name == "body" and value else [])
        else:
            (fields[name],) = _replacement(value, replacements)
    return ast.copy_location(type(tree)(**fields), tree)


def _replacement(old: object, replacements: Replacements) -> list:
    if not isinstance(old, ast.AST):
        return [old]
    if old in replacements:
        return [ast.copy_location(new, old) for new in replacements[old]]
    return [_copy(old, replacements)]


def definitions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield functions, classes and assigned names with their qualified names, outer ones first."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield prefix + name, node
                inner = definitions(node, f"{prefix}{name}.")
                yield from (pair for pair in inner if isinstance(pair[1], FUNCTIONS))
            case ast.ClassDef(name=name):
                yield prefix + name, node
                yield from definitions(node, f"{prefix}{name}.")
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield prefix + name, node
            case ast.If() | ast.Try() | ast.With():
                yield from definitions(node, prefix)


def outer_functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield the functions and methods that are not inside another function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, FUNCTIONS):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from outer_functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If | ast.Try):
            yield from outer_functions(node, prefix)
