"""Bad input made from good: each field of a request in turn gets the values that go wrong."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from uuid import UUID

from tests.differential import wire
from tests.differential.catalogue import Case, Play, Ranges, Template, Values, example, request
from tests.differential.script import PATIENCE_S

LIMITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63, "error_code": 15}
LIMITS |= {"timedelta_i32": 31, "timedelta_i64": 63, "datetime_i64": 63}
UNKNOWN_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
TEXTS = ("", "a b", ".", "\u017elu\u0165", "x" * 300)

Path = tuple[str | int, ...]
Change = Callable[[Values], Values]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to vary the requests of one API. ``prepare`` is played before each.

    ``skip`` names changes (as in a case's name) that must not be sent: those that wait for ever,
    stop the broker, or change the cluster for the cases that follow. ``keep`` are fields that are
    never changed.
    """

    api: str
    template: Template
    skip: frozenset[str] = frozenset()
    keep: frozenset[str] = frozenset()
    to_controller: bool = False
    patience_s: float = PATIENCE_S
    prepare: Play | None = None


def cases_of(plan: Plan, family: str, ranges: Ranges) -> Iterator[Case]:
    """Yield the good request and its changes, in every version.

    All changes are made to the first, the last and the first flexible version; the versions
    between get the good request, one byte too many and one too few.
    """
    versions = ranges.of(plan.api)
    flexible = [v for v in versions if wire.request_shape(plan.api, v).is_flexible]
    wide = {*versions[:1], *versions[-1:], *flexible[:1]}
    for version in versions:

        def case(what: str, version: int = version, **options: object) -> Case:
            options |= {"to_controller": plan.to_controller, "prepare": plan.prepare}
            play = request(plan.api, version, plan.template, **options)
            return Case(f"{family}/{plan.api}/{what}/v{version}", play, plan.patience_s)

        yield case("good")
        yield case("one byte too many", tail=b"\0")
        if wire.request_shape(plan.api, version).fields:
            yield case("one byte too few", cut=1)
        if version in wide:
            for label, change in changes(plan, version):
                yield case(label, change=change)


def changes(plan: Plan, version: int) -> Iterator[tuple[str, Change]]:
    """Yield each change as its label and a function on the request's values."""
    values = example(plan.template)
    for label, path, value in _walk(wire.request_shape(plan.api, version), values, ()):
        if label not in plan.skip and path[-1] not in plan.keep:
            yield label, _setter(path, value)


def _setter(path: Path, value: object) -> Change:
    return lambda values: _changed(values, path, value)


def _changed(values: object, path: Path, value: object) -> object:
    """Return a copy with one place replaced; a callable makes the new value from the old."""
    if not path:
        return value(values) if callable(value) else value
    head, *rest = path
    copy = list(values) if isinstance(values, list) else dict(values)
    inside = copy[head] if isinstance(head, int) else copy.get(head)
    copy[head] = _changed(inside, tuple(rest), value)
    return copy


def _walk(shape: wire.Shape, values: Values, path: Path) -> Iterator[tuple[str, Path, object]]:
    for spec in shape.fields:
        here = (*path, spec.name)
        label = _label(here)
        current = values.get(spec.name, spec.default)
        if spec.is_array:
            yield from _array(spec, label, here, current)
        elif spec.inner is not None:
            yield f"{label}=null", here, None
            if isinstance(current, dict):
                yield from _walk(spec.inner, current, here)
        else:
            for word, value in _scalars(spec.kind, current):
                yield f"{label}={word}", here, value


def _array(
    spec: wire.Field, label: str, here: Path, current: object
) -> Iterator[tuple[str, Path, object]]:
    yield f"{label}=null", here, None
    if not current:
        yield f"{label}=[]", here, []
        return
    yield f"{label}=[]", here, []
    yield f"{label} twice", here, lambda items: [items[0], *items]
    if spec.inner is not None:
        yield from _walk(spec.inner, current[0], (*here, 0))
    else:
        for word, value in _scalars(spec.kind, current[0]):
            yield f"{label}[0]={word}", (*here, 0), value


def _label(path: Path) -> str:
    words = ""
    for part in path:
        words += f"[{part}]" if isinstance(part, int) else f".{part}" if words else part
    return words


def _scalars(kind: str, current: object) -> Iterator[tuple[str, object]]:
    if kind == "bool":
        yield str(not current).lower(), not current
    elif kind in LIMITS:
        limit = 1 << LIMITS[kind]
        named = (("-1", -1), ("0", 0), ("-2", -2), ("99", 99), ("max", limit - 1), ("min", -limit))
        yield from ((word, value) for word, value in named if value != current)
    elif kind == "float64":
        named = (("-1", -1.0), ("0", 0.0), ("nan", float("nan")), ("inf", float("inf")))
        yield from named
        yield "0.5", 0.5
    elif kind == "uuid":
        yield "zero", wire.ZERO_UUID
        yield "unknown", UNKNOWN_ID
    elif kind == "string":
        yield "null", None
        for text in TEXTS:
            yield f"'{text[:6]}'", text
    elif kind in ("bytes", "records"):
        yield "null", None
        yield "empty", b""
        yield "garbage", b"garbage!" * 9
    elif kind == "uint16":
        yield from (("0", 0), ("max", 65535))
