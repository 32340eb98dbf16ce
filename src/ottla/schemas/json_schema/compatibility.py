"""Whether a reader's JSON Schema accepts everything that the writer's accepts.

Two trees are compared part by part, by Confluent's rules: every difference has a name, and its
policy says which ones are harmless. Only the others are collected. The rules of objects and arrays
are in `content_models.py`.

Recursive schemas: a pair of schemas that is being compared counts as compatible. Pairs that turn
out to be incompatible are remembered, and the comparison is repeated until no more are found.
"""

from collections.abc import Sequence
from decimal import Context, Decimal, InvalidOperation
from typing import Final

from ottla.schemas.bounds import DIFFERENCES_MAX, PAIRS_MAX
from ottla.schemas.contract import Difference, InvalidSchema
from ottla.schemas.json_schema.changes import difference, is_harmless
from ottla.schemas.json_schema.content_models import compare_arrays, compare_objects
from ottla.schemas.json_schema.keywords import Keywords
from ottla.schemas.json_schema.matching import matching_size
from ottla.schemas.json_schema.shapes import Shape, Shapes
from ottla.schemas.json_text import Json, sort_keys, write_json
from ottla.schemas.nested_calls import Call, run_nested

# A difference on the way: its rule, and its path from the pair that is compared.
Finding = tuple[str, tuple[str, ...]]
Findings = Sequence[Finding]
Schema = Shape | Json
_DECIMALS: Final = Context(prec=100)


def compare_schemas(
    writer: tuple[Shapes, Schema], reader: tuple[Shapes, Schema], policy: str
) -> list[Difference]:
    """Return what keeps ``reader`` from accepting data of ``writer``.

    Raises:
        InvalidSchema: a reference cannot be resolved, or there is too much to compare.
    """
    incompatible: dict[tuple[int, int], Findings] = {}
    comparison = Comparison(writer[0], reader[0], policy)
    while True:
        findings = run_nested(comparison.compare(writer[1], reader[1]))
        if not comparison.is_optimistic or comparison.incompatible.keys() == incompatible.keys():
            break
        incompatible = comparison.incompatible
        comparison = comparison.repeated()
    return [difference(rule, "#/" + "/".join(path)) for rule, path in findings]


class Comparison:
    """One pass over two schemas. Pairs are compared by identity."""

    def __init__(self, writer: Shapes, reader: Shapes, policy: str) -> None:
        self._writer = writer
        self._reader = reader
        self._policy = policy
        self._results: dict[tuple[int, int], Findings] = {}
        self._in_progress: set[tuple[int, int]] = set()
        self._is_reversed = False
        self._earlier: dict[tuple[int, int], Findings] = {}
        self._steps = 0
        self._fingerprints = _Fingerprints()
        self.incompatible: dict[tuple[int, int], Findings] = {}
        self.is_optimistic = False

    def repeated(self) -> "Comparison":
        """Return the next pass, which knows the incompatible pairs of this one."""
        comparison = Comparison(self._writer, self._reader, self._policy)
        comparison._earlier = self.incompatible
        comparison._steps = self._steps
        comparison._fingerprints = self._fingerprints
        return comparison

    def count_step(self) -> None:
        """Count work that depends on what clients sent. Raises InvalidSchema beyond the bound."""
        self._steps += 1
        if self._steps > PAIRS_MAX:
            raise InvalidSchema(f"The schemas have more than {PAIRS_MAX} pairs of parts to compare")

    def finding(self, rule: str, *path: str) -> list[Finding]:
        """Return a difference as a list, which is empty if the policy allows it."""
        return [] if is_harmless(rule, self._policy) else [(rule, path)]

    def compare(self, writer: Schema, reader: Schema, *path: str) -> Call[Findings]:
        """Compare two schemas; None is one that is absent. ``path`` leads to them."""
        self.count_step()
        if writer is None or reader is None:
            if writer is reader:
                return []
            return self.finding("SCHEMA_ADDED" if writer is None else "SCHEMA_REMOVED", *path)
        findings = yield self._compare_pair(*self._shapes(writer, reader))
        return [(rule, path + below) for rule, below in findings][:DIFFERENCES_MAX]

    def shape(self, schema: Schema, *, is_writer: bool) -> Shape:
        """Return the shape of a schema of one side."""
        return (self._writer if is_writer is not self._is_reversed else self._reader).of(schema)

    def _shapes(self, writer: Schema, reader: Schema) -> tuple[Shape, Shape]:
        return self.shape(writer, is_writer=True), self.shape(reader, is_writer=False)

    def _compare_pair(self, writer: Shape, reader: Shape) -> Call[Findings]:
        pair = id(writer), id(reader)
        if pair in self._results:
            return self._results[pair]
        if pair in self._in_progress:
            if pair not in self._earlier:
                self.is_optimistic = True
            return self._earlier.get(pair, ())
        self._in_progress.add(pair)
        findings: Findings = yield self._compare_shapes(writer, reader)
        self._in_progress.discard(pair)
        self._results[pair] = findings
        if findings:
            self.incompatible[pair] = findings
        return findings

    def _compare_shapes(self, writer: Shape, reader: Shape) -> Call[Findings]:
        if (yield self._is_covered(writer, reader)):
            return []
        if writer.kind != reader.kind:
            return self._kinds(writer, reader)
        a, b = writer.keywords, reader.keywords
        findings: Findings = []
        match writer.kind:
            case "string":
                findings = [*self.limits(a, b, "maxLength", "minLength"), *self._patterns(a, b)]
            case "number":
                findings = self._numbers(writer, reader)
            case "const":
                if not _is_equal(writer.node["const"], reader.node["const"]):
                    findings = self.finding("ENUM_ARRAY_CHANGED", "const")
            case "enum":
                findings = self._enums(writer, reader)
            case "combined":
                findings = yield self._combinations(writer, reader)
            case "not":
                findings = yield self._negations(writer, reader)
            case "object":
                findings = yield compare_objects(self, a, b)
            case "array":
                findings = yield compare_arrays(self, a, b)
        return findings

    def _is_covered(self, writer: Shape, reader: Shape) -> Call[bool]:
        """Return whether one schema fits a part of a combination that is the other."""
        if (writer.kind == "combined") is (reader.kind == "combined"):
            return False
        combined = reader if reader.kind == "combined" else writer
        criteria = ("anyOf", "oneOf") if combined is reader else ("allOf",)
        if len(combined.subschemas) != 1 and combined.criterion not in criteria:
            return False
        for part in combined.subschemas:
            pair = (writer, part) if combined is reader else (part, reader)
            if not (yield self.compare(*pair)):
                return True
        return False

    def _kinds(self, writer: Shape, reader: Shape) -> Findings:
        if writer.kind == "false" or reader.kind == "empty":
            return []
        # Kafka Connect writes decimals as numbers or strings; both are bytes to it.
        if writer.node.get("connect.type") == "bytes" == reader.node.get("connect.type"):
            return []
        return self.finding("TYPE_CHANGED")

    def limits(self, writer: Keywords, reader: Keywords, *keywords: str) -> list[Finding]:
        """Compare bounds such as ``maxLength``."""
        findings: list[Finding] = []
        for keyword in keywords:
            noun = "".join(f"_{c}" if c.isupper() else c.upper() for c in keyword).upper()
            old, new = writer.limits.get(keyword), reader.limits.get(keyword)
            if old == new:
                continue
            if old is None:
                findings += self.finding(f"{noun}_ADDED", keyword)
            elif new is None:
                findings += self.finding(f"{noun}_REMOVED", keyword)
            else:
                change = "INCREASED" if old < new else "DECREASED"
                findings += self.finding(f"{noun}_{change}", keyword)
        return findings

    def _patterns(self, writer: Keywords, reader: Keywords) -> list[Finding]:
        if writer.pattern == reader.pattern:
            return []
        if writer.pattern is None:
            return self.finding("PATTERN_ADDED", "pattern")
        change = "PATTERN_REMOVED" if reader.pattern is None else "PATTERN_CHANGED"
        return self.finding(change, "pattern")

    def _numbers(self, writer: Shape, reader: Shape) -> Findings:
        a, b = writer.keywords, reader.keywords
        findings = self.limits(a, b, "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum")
        old, new = a.limits.get("multipleOf"), b.limits.get("multipleOf")
        if old != new:
            if old is None or new is None:
                change = "ADDED" if old is None else "REMOVED"
            elif _is_multiple(Decimal(new), Decimal(old)):
                change = "EXPANDED"
            else:
                change = "REDUCED" if _is_multiple(Decimal(old), Decimal(new)) else "CHANGED"
            findings += self.finding(f"MULTIPLE_OF_{change}", "multipleOf")
        if writer.is_integer is not reader.is_integer:
            findings += self.finding("TYPE_EXTENDED" if writer.is_integer else "TYPE_NARROWED")
        return findings

    def _enums(self, writer: Shape, reader: Shape) -> Findings:
        old, new = _values(writer.node["enum"]), _values(reader.node["enum"])
        if old == new:
            return []
        if new >= old:
            return self.finding("ENUM_ARRAY_EXTENDED", "enum")
        change = "ENUM_ARRAY_NARROWED" if old >= new else "ENUM_ARRAY_CHANGED"
        return self.finding(change, "enum")

    def _negations(self, writer: Shape, reader: Shape) -> Call[Findings]:
        """Compare what must not match, the other way round."""
        self._is_reversed = not self._is_reversed
        findings = yield self.compare(reader.node["not"], writer.node["not"])
        self._is_reversed = not self._is_reversed
        return self.finding("NOT_TYPE_EXTENDED" if findings else "NOT_TYPE_NARROWED", "not")

    def _combinations(self, writer: Shape, reader: Shape) -> Call[Findings]:
        findings = self._criteria(writer, reader)
        if any(rule == "COMBINED_TYPE_CHANGED" for rule, _ in findings):
            return findings
        old = self._fingerprints.distinct(writer.subschemas)
        new = self._fingerprints.distinct(reader.subschemas)
        if len(old) * len(new) > PAIRS_MAX:
            raise InvalidSchema(f"The schemas have more than {PAIRS_MAX} pairs of parts to compare")
        if len(old) < len(new):
            kind = "PRODUCT" if reader.criterion == "allOf" else "SUM"
            findings += self.finding(f"{kind}_TYPE_EXTENDED")
        elif len(old) > len(new):
            kind = "PRODUCT" if writer.criterion == "allOf" else "SUM"
            findings += self.finding(f"{kind}_TYPE_NARROWED")
        edges: list[list[int]] = []
        for old_part in old:
            edges.append([])
            for index, new_part in enumerate(new):
                if not (yield self.compare(old_part, new_part)):
                    edges[-1].append(index)
        if matching_size(edges, len(new)) < min(len(old), len(new)):
            findings += self.finding("COMBINED_TYPE_SUBSCHEMAS_CHANGED")
        return findings

    def _criteria(self, writer: Shape, reader: Shape) -> list[Finding]:
        if writer.criterion == reader.criterion:
            return []
        is_single, becomes_single = len(writer.subschemas) == 1, len(reader.subschemas) == 1
        if (
            reader.criterion == "anyOf"
            or (is_single and (becomes_single or reader.criterion == "oneOf"))
            or (becomes_single and writer.criterion == "allOf")
        ):
            return self.finding("COMBINED_TYPE_EXTENDED")
        return self.finding("COMBINED_TYPE_CHANGED")


def _is_multiple(number: Decimal, divisor: Decimal) -> bool:
    if divisor == 0:
        return False
    try:
        return _DECIMALS.remainder(number, divisor) == 0
    except InvalidOperation:  # the quotient has more digits than anybody writes
        return False


def _values(values: Json) -> frozenset[str]:
    assert isinstance(values, list)
    return frozenset(write_json(sort_keys(value)) for value in values)


def _is_equal(one: Json, other: Json) -> bool:
    return _values([one]) == _values([other])


class _Fingerprints:
    """Numbers that are equal for equal schemas, whatever the order of their members.

    The number of every object and array is computed once, also if combinations are nested.
    """

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def distinct(self, subschemas: Sequence[Schema]) -> list[Schema]:
        """Return the subschemas without repetitions."""
        distinct: dict[int, Schema] = {}
        for subschema in subschemas:
            distinct.setdefault(self._number(subschema), subschema)
        return list(distinct.values())

    def _number(self, value: Schema) -> int:
        if isinstance(value, Shape):
            return id(value)
        if not isinstance(value, dict | list):
            return hash((type(value).__name__, str(value)))
        number = self._numbers.get(id(value))
        if number is None:
            if isinstance(value, dict):
                number = hash(frozenset((key, self._number(item)) for key, item in value.items()))
            else:
                number = hash(tuple(self._number(item) for item in value))
            self._numbers[id(value)] = number
        return number
