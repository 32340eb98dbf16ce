"""Options of .proto files: from text to ``UninterpretedOption``, and back to text.

An aggregate value, ``{a: 1, b {c: "x"}}``, is kept as text. To print it, it is read again as a tree
of fields and printed with one field per line.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb

from ottla.schemas.protobuf.tokens import NESTING_MAX, TokenStream, int_of

UINT64_MAX: Final = 2**64 - 1
INT64_MIN: Final = -(2**63)
# A field of an aggregate: its name, and a text, a list or the fields of another aggregate.
Value = str | list["Value"] | dict[str, "Value"]
_ESCAPES: Final = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    "\\": "\\\\", "'": "\\'", '"': '\\"',
}  # fmt: skip
# A whole number that is written with a fraction of zero.
_WHOLE: Final = re.compile(r"^(-?[0-9]+)\.0+$")
_TO_ESCAPE: Final = re.compile("[\x00-\x1f\x7f\\\\'\"]")


def parse_option_statement(stream: TokenStream, options: Any) -> None:  # noqa: ANN401
    """Parse ``name = value;`` into a list of options."""
    _option(stream, options)
    stream.expect(";")


def parse_bracketed_options(stream: TokenStream, options: Any) -> None:  # noqa: ANN401
    """Parse ``[name = value, ...]`` into a list of options."""
    stream.expect("[")
    while True:
        _option(stream, options)
        if not stream.take_if(","):
            break
    stream.expect("]")


def _option(stream: TokenStream, options: Any) -> None:  # noqa: ANN401
    option = pb.UninterpretedOption()
    while True:
        if stream.take_if("("):
            option.name.add(name_part=stream.full_name(), is_extension=True)
            stream.expect(")")
        else:
            option.name.add(name_part=stream.name(), is_extension=False)
        if not stream.take_if("."):
            break
    stream.expect("=")
    if not stream.take_if("["):
        _value(stream, options.add(name=option.name))
        return
    while not stream.take_if("]"):  # a list is short for several options of one name
        _value(stream, options.add(name=option.name))
        if stream.next.text != "]":
            stream.expect(",")


def _value(stream: TokenStream, option: pb.UninterpretedOption) -> None:
    token = stream.next
    if token.kind == "string":
        option.string_value = stream.string().encode(errors="surrogatepass")
    elif token.text == "{":
        option.aggregate_value = _aggregate_text(stream)
    elif token.kind == "name":
        option.identifier_value = stream.take().text
    else:
        is_negative = stream.take_if("-")
        if not is_negative:
            stream.take_if("+")
        _number(stream, option, is_negative=is_negative)


def _number(stream: TokenStream, option: pb.UninterpretedOption, *, is_negative: bool) -> None:
    token = stream.next
    if is_negative and token.text in ("inf", "nan"):
        option.double_value = -float(stream.take().text)
        return
    if token.kind != "number":
        stream.fail("expected a value")
    stream.take()
    try:
        if len(token.text) > 30:
            raise ValueError(token.text)
        value = -int_of(token.text) if is_negative else int_of(token.text)
    except ValueError:
        number = float(token.text.rstrip("fF"))
        option.double_value = -number if is_negative else number
        return
    if not INT64_MIN <= value <= UINT64_MAX:
        option.double_value = float(value)
    elif value < 0 or is_negative:
        option.negative_int_value = value
    else:
        option.positive_int_value = value


def _aggregate_text(stream: TokenStream) -> str:
    """Consume an aggregate and return its tokens without the outer braces."""
    parts: list[str] = []
    depth = 0
    while True:
        token = stream.take()
        if token.text in ("{", "[", "<") and token.kind == "symbol":
            depth += 1
            if depth > NESTING_MAX:
                stream.fail(f"values nested more than {NESTING_MAX} levels deep")
        elif token.text in ("}", "]", ">") and token.kind == "symbol":
            depth -= 1
        parts.append(token.text)
        if depth == 0:
            return " ".join(parts[1:-1])


def option_texts(options: Iterable[pb.UninterpretedOption], *, is_sorted: bool) -> list[str]:
    """Return ``name = value`` of every option; sorted ones have the fields of aggregates sorted."""
    texts = [
        f"{option_name(option)} = {_value_text(option, is_sorted=is_sorted)}" for option in options
    ]
    return sorted(texts) if is_sorted else texts


def option_name(option: pb.UninterpretedOption) -> str:
    """Return the name of an option as written."""
    return ".".join(
        f"({part.name_part})" if part.is_extension else part.name_part for part in option.name
    )


def _value_text(option: pb.UninterpretedOption, *, is_sorted: bool) -> str:
    match option:
        case _ if option.HasField("string_value"):
            return quoted(option.string_value.decode(errors="replace"))
        case _ if option.HasField("identifier_value"):
            return str(option.identifier_value)
        case _ if option.HasField("aggregate_value"):
            return _printed(parse_aggregate(option.aggregate_value), is_sorted=is_sorted)
        case _ if option.HasField("positive_int_value"):
            return str(option.positive_int_value)
        case _ if option.HasField("negative_int_value"):
            return str(option.negative_int_value)
        case _:
            text = repr(option.double_value)
            return text.removesuffix(".0") if is_sorted else text


def quoted(text: str) -> str:
    """Return ``text`` as a string of a .proto file."""
    escaped = _TO_ESCAPE.sub(lambda m: _ESCAPES.get(m[0]) or f"\\{ord(m[0]):03o}", text)
    return f'"{escaped}"'


def parse_aggregate(text: str) -> dict[str, Value]:
    """Return the fields of an aggregate. Raises InvalidSchema."""
    stream = TokenStream(text)
    fields = _fields(stream, "")
    if stream.next.kind != "end":
        stream.fail("expected a field name")
    return fields


def _fields(stream: TokenStream, closing: str) -> dict[str, Value]:
    fields: dict[str, Value] = {}
    while stream.next.kind != "end" and stream.next.text != closing:
        if stream.take_if("["):
            name = f"[{stream.full_name()}"
            while stream.take_if("/"):
                name += "/" + stream.full_name()
            stream.expect("]")
            name += "]"
        else:
            name = stream.name()
        stream.take_if(":")
        value = _field_value(stream)
        if name in fields:
            earlier = fields[name]
            value = [*(earlier if isinstance(earlier, list) else [earlier]), value]
        fields[name] = value
        if not stream.take_if(","):
            stream.take_if(";")
    return fields


def merged(options: Iterable[pb.UninterpretedOption]) -> Iterator[pb.UninterpretedOption]:
    """Yield options with those of one message joined: ``(x).a = 1`` and ``(x) = {b: 2}``."""
    aggregates: dict[tuple[str, bool], dict[str, Value]] = {}
    for option in options:
        first = option.name[0]
        if len(option.name) == 1 and not option.HasField("aggregate_value"):
            yield option
            continue
        fields = aggregates.setdefault((first.name_part, first.is_extension), {})
        names = [f"[{p.name_part}]" if p.is_extension else p.name_part for p in option.name[1:]]
        if option.HasField("aggregate_value"):
            value: Value = parse_aggregate(option.aggregate_value)
        else:
            value = _value_text(option, is_sorted=False)
        for name in reversed(names):
            value = {name: value}
        assert isinstance(value, dict)
        _merge(fields, value)
    for (name, is_extension), fields in aggregates.items():
        option = pb.UninterpretedOption()
        option.name.add(name_part=name, is_extension=is_extension)
        option.aggregate_value = " ".join(f"{key}: {flat(fields[key])}" for key in fields)
        yield option


def _merge(fields: dict[str, Value], added: dict[str, Value]) -> None:
    for name, value in added.items():
        earlier = fields.get(name)
        if earlier is None:
            fields[name] = value
        elif isinstance(earlier, dict) and isinstance(value, dict):
            _merge(earlier, value)
        else:
            both = [part if isinstance(part, list) else [part] for part in (earlier, value)]
            fields[name] = [*both[0], *both[1]]


def flat(value: Value) -> str:
    """Return a value of an aggregate in one line."""
    if isinstance(value, dict):
        return "{ " + " ".join(f"{key}: {flat(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(flat, value)) + "]"
    return value


def _field_value(stream: TokenStream) -> Value:
    for opening, closing in (("{", "}"), ("<", ">")):
        if stream.take_if(opening):
            fields = _fields(stream, closing)
            stream.expect(closing)
            return fields
    if stream.take_if("["):
        values: list[Value] = []
        while not stream.take_if("]"):
            values.append(_field_value(stream))
            if stream.next.text != "]":
                stream.expect(",")
        return values
    if stream.next.kind == "string":
        return quoted(stream.string())
    sign = "-" if stream.take_if("-") else ""
    return sign + stream.take().text


def _printed(value: Value, *, is_sorted: bool) -> str:
    return "\n".join(_lines(value, is_sorted=is_sorted))


def _lines(value: Value, *, is_sorted: bool) -> Iterator[str]:
    """Yield the lines of a value; the first and the last stand at the margin."""
    if isinstance(value, str):
        yield _WHOLE.sub(r"\1", value) if is_sorted else value
        return
    if isinstance(value, list):
        if is_sorted and len(value) == 1:
            yield from _lines(value[0], is_sorted=True)
            return
        items = [list(_lines(item, is_sorted=is_sorted)) for item in value]
        opening, closing = "[", "]"
    else:
        names = sorted(key for key in value if value[key] != []) if is_sorted else list(value)
        items = []
        for name in names:
            first, *rest = _lines(value[name], is_sorted=is_sorted)
            items.append([f"{name}: {first}", *rest])
        opening, closing = "{", "}"
    yield opening
    for index, lines in enumerate(items):
        if index < len(items) - 1:
            lines[-1] += ","
        yield from (f"  {line}" for line in lines)
    yield closing
