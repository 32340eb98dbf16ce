"""Generate mutants of a function: each is one node and what replaces it. Pure.

Left alone is what no test can or should see: assertions, messages of exceptions, log lines,
annotations, decorators, docstrings and f-strings.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tests.mutants.trees import FUNCTIONS, rewrite

COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
EMPTY = {
    "list": ast.List(elts=[], ctx=ast.Load()),
    "tuple": ast.Tuple(elts=[], ctx=ast.Load()),
    "dict": ast.Dict(keys=[], values=[]),
    "str": ast.Constant(""),
    "bytes": ast.Constant(b""),
    "Iterable": ast.Tuple(elts=[], ctx=ast.Load()),
    "Sequence": ast.Tuple(elts=[], ctx=ast.Load()),
}
LOG_NAMES = {"log", "logger", "_log", "LOG", "logging", "warnings"}
UNSEEN_FUNCTIONS = {"__repr__", "__str__", "__hash__", "__del__"}
UNSEEN = (ast.Assert, ast.Raise, ast.JoinedStr, ast.arguments, ast.Global, ast.Nonlocal)


@dataclass(frozen=True, slots=True)
class Mutation:
    """One node of a tree, and the nodes that replace it."""

    operator: str
    old: ast.AST
    new: tuple[ast.AST, ...]

    @property
    def line(self) -> int:
        return getattr(self.old, "lineno", 0)

    def apply(self, tree: ast.Module) -> ast.AST:
        return rewrite(tree, {self.old: list(self.new)})

    def diff(self) -> str:
        """Return the first lines of the old and the new code."""
        new = self.new[0] if self.new else ast.Pass()
        before, after = (ast.unparse(ast.fix_missing_locations(n)) for n in (self.old, new))
        return f"- {before.splitlines()[0]}\n+ {after.splitlines()[0]}"


def mutations(function: ast.AST) -> list[Mutation]:
    """Return the mutations of a function and of the functions inside it."""
    assert isinstance(function, FUNCTIONS)
    if function.name in UNSEEN_FUNCTIONS:
        return []
    return [mutation for node in _seen(function) for mutation in _mutations_of(node, function)]


def _seen(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below one whose change a test may see."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, UNSEEN) and not _is_log(child):
                yield child
                yield from _seen(child)


def _is_log(node: ast.AST) -> bool:
    """Return whether a statement writes a log line or is a docstring."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=receiver))):
            return ast.unparse(receiver).rpartition(".")[2] in LOG_NAMES
    return False


def _mutations_of(node: ast.AST, function: ast.AST) -> Iterator[Mutation]:
    match node:
        case ast.Compare(left=left, ops=ops, comparators=right):
            for index, op in enumerate(ops):
                if swapped := COMPARISONS.get(type(op)):
                    new_ops = [*ops[:index], swapped(), *ops[index + 1 :]]
                    yield Mutation("comparison", node, (ast.Compare(left, new_ops, right),))
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield Mutation("boolean", node, (ast.BoolOp(other, values),))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield Mutation("boolean", node, (operand,))
        case ast.BinOp(left=left, op=op, right=right) if not _is_text(left):
            if swapped := ARITHMETIC.get(type(op)):
                yield Mutation("arithmetic", node, (ast.BinOp(left, swapped(), right),))
        case ast.AugAssign(target=target, op=op, value=value):
            if swapped := ARITHMETIC.get(type(op)):
                yield Mutation("arithmetic", node, (ast.AugAssign(target, swapped(), value),))
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            for other in {number + 1, number - 1 if number > 0 else number + 1}:
                yield Mutation("constant", node, (ast.Constant(other),))
        case ast.Return(value=value) if value is not None:
            yield from _returns(node, value, function)
    yield from _conditions(node)
    yield from _removals(node)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _conditions(node: ast.AST) -> Iterator[Mutation]:
    """Yield conditions that always or never hold. A loop that never ends says nothing."""
    match node:
        case ast.If(test=test) | ast.IfExp(test=test):
            yield Mutation("condition", test, (ast.Constant(True),))
            yield Mutation("condition", test, (ast.Constant(False),))
        case ast.While(test=test) if not isinstance(test, ast.Constant):
            yield Mutation("condition", test, (ast.Constant(False),))
        case ast.comprehension(ifs=tests):
            for test in tests:
                yield Mutation("condition", test, (ast.Constant(True),))


def _removals(node: ast.AST) -> Iterator[Mutation]:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())):
            yield Mutation("removed call", node, ())
        case ast.Assign(targets=[ast.Attribute()]):
            yield Mutation("removed assignment", node, ())


def _returns(node: ast.AST, value: ast.expr, function: ast.AST) -> Iterator[Mutation]:
    """Yield other values of the declared type."""
    assert isinstance(function, FUNCTIONS)
    declared = ast.unparse(function.returns) if function.returns else ""
    others: list[ast.expr] = []
    if declared == "bool" and not isinstance(value, ast.Compare | ast.BoolOp):
        others.append(ast.UnaryOp(ast.Not(), value))
    if declared == "int":
        others.append(ast.BinOp(value, ast.Add(), ast.Constant(1)))
    if declared.endswith("| None") and not isinstance(value, ast.Constant):
        others.append(ast.Constant(None))
    if empty := EMPTY.get(declared.partition("[")[0]):
        others.append(empty)
    for other in others:
        if ast.dump(other) != ast.dump(value):
            yield Mutation("return value", node, (ast.Return(other),))
