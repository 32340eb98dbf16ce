"""Generates the function that decodes one version of a message.

It has the shape ``read(buffer, position, end) -> (message, position)`` and no calls but to
`struct` and `primitives`. Neighbouring fields of a fixed size are unpacked together, and so is
the length of the string or array behind them (the first byte of it, where it is a varint: there
is always one). Arrays of structs become loops with the element's code inside.

In steps, the same function is a generator that yields every `ELEMENTS_PER_STEP` elements, so that a
large message can be decoded without holding the event loop.

Running off the end of the buffer surfaces as ``IndexError`` or ``struct.error``, which the
caller turns into a fault; slices, which never fail, are checked before they are taken.
"""

from collections.abc import Callable

from ottla.protocol.codec import primitives
from ottla.protocol.codec.layout import (
    FORMATS,
    SIZES,
    Layout,
    Part,
    default_of,
    element_layout,
    has_records,
    layout_of,
    size_min,
)
from ottla.protocol.codec.source import ELEMENTS_PER_STEP, VALUES_PER_STEP, Source
from ottla.protocol.schema import Kind, Message, Type

_WIDTHS = {"B": 1, **{FORMATS[kind]: size for kind, size in SIZES.items()}}
_HELPERS = {
    name: getattr(primitives, name)
    for name in (
        *("read_uvarint", "read_long_string_length", "read_tag", "read_tag_count"),
        *("skip_tags", "refuse_count", "refuse_length", "refuse_tag"),
    )
}


def write_reader(
    struct: type[Message], version: int, is_flexible: bool, *, in_steps: bool = False
) -> Callable[..., object]:
    """Return the decoder of a version: a `primitives.Reader`, or a generator function in steps.

    Its buffer must be ``bytes``, or a memoryview of bytes where the message has records.
    """
    writer = _ReaderWriter(struct, version, in_steps)
    writer.write(layout_of(struct, version, is_flexible))
    title = f"read {struct.__name__} v{version}"
    return writer.source.function("read", title)  # type: ignore[return-value]


class _ReaderWriter:
    def __init__(self, struct: type[Message], version: int, in_steps: bool) -> None:
        self.source = Source()
        self.source.names.update(_HELPERS)
        self._in_steps = in_steps
        self._version = version
        self._is_view = has_records(struct, version)
        self._title = f"{struct.__name__} v{version}"
        self._run: list[tuple[str, str]] = []  # (format, variable), not unpacked yet

    def write(self, layout: Layout) -> None:
        with self.source.block("def read(buffer, position, end):"):
            if self._in_steps:
                self.source.line("yield")
                self.source.line("steps = 0")
            message = self._struct(layout, "")
            self.source.line(f"return {message}, position")

    # -- runs of fixed size --------------------------------------------------

    def _fixed(self, formats: str, variable: str) -> None:
        self._run.append((formats, variable))

    def _flush(self) -> None:
        """Unpack the run; every variable in it has a value from here on."""
        run, self._run = self._run, []
        if not run:
            return
        if run == [("B", run[0][1])]:
            self.source.line(f"{run[0][1]} = buffer[position]")
        else:
            unpack = self.source.packing("".join(f for f, _ in run), "unpack_from")
            variables = ", ".join(variable for _, variable in run)
            self.source.line(f"{variables}, = {unpack}(buffer, position)")
        self.source.line(f"position += {sum(_WIDTHS[f] for f, _ in run)}")

    # -- structs -------------------------------------------------------------

    def _struct(self, layout: Layout, path: str) -> str:
        """Write the fields of a struct; return the expression that makes it."""
        variables = {
            part.name: self._value(part.type, part, f"{path}{part.name}") for part in layout.parts
        }
        if layout.is_flexible:
            variables |= self._tagged(layout, path)
        self._flush()
        arguments = [
            variables.get(name) or self._default(layout.struct, name)
            for name in layout.struct.__struct_fields__
        ]
        struct = self.source.constant(layout.struct.__name__, layout.struct)
        return f"{struct}({', '.join(arguments)})"

    def _default(self, struct: type[Message], name: str) -> str:
        """Return an expression for a default, a new object each time where it can be changed."""
        value = default_of(struct, name)
        if isinstance(value, list):
            return "[]"
        if isinstance(value, Message):
            return self.source.constant(type(value).__name__, type(value)) + "()"
        return repr(value) if isinstance(value, int | str | bytes | None) else f"float({value!r})"

    def _tagged(self, layout: Layout, path: str) -> dict[str, str]:
        count = self.source.fresh("tags")
        self._fixed("B", count)
        self._flush()
        if not layout.tagged:
            with self.source.block(f"if {count}:"):
                self.source.line("position = skip_tags(buffer, position - 1, end)")
            return {}
        variables = {part.name: self.source.fresh(part.name) for _, part in layout.tagged}
        for name, variable in variables.items():
            self.source.line(f"{variable} = {self._default(layout.struct, name)}")
        with self.source.block(f"if {count}:"):
            self.source.line(f"{count}, position = read_tag_count(buffer, position - 1, end)")
            self._tag_loop(layout, path, count, variables)
        return variables

    def _tag_loop(self, layout: Layout, path: str, count: str, variables: dict[str, str]) -> None:
        tag, stop = self.source.fresh("tag"), self.source.fresh("stop")
        self.source.line(f"{tag} = -1")
        with self.source.block(f"for _ in range({count}):"):
            self.source.line(f"{tag}, position, {stop} = read_tag(buffer, position, end, {tag})")
            word = "if"
            for number, part in layout.tagged:
                with self.source.block(f"{word} {tag} == {number}:"):
                    value = self._value(part.type, part, f"{path}{part.name}")
                    self._flush()
                    self.source.line(f"{variables[part.name]} = {value}")
                word = "elif"
            with self.source.block("else:"):
                self.source.line(f"position = {stop}")
            with self.source.block(f"if position != {stop}:"):
                self.source.line(f"refuse_tag({self._where(path or 'tags')}, position, {stop})")

    # -- values --------------------------------------------------------------

    def _where(self, path: str) -> str:
        return repr(f"{self._title} {path.rstrip('.')}")

    def _value(self, type_: Type, part: Part, path: str) -> str:
        """Write one value; return the variable that has it once the run is flushed."""
        variable = self.source.fresh(part.name)
        if type_.kind in FORMATS:
            self._fixed(FORMATS[type_.kind], variable)
        elif type_.kind is Kind.STRUCT:
            self._inner_struct(type_, part, path, variable)
        elif type_.kind is Kind.ARRAY:
            self._array(part, path, variable)
        else:
            self._sized(type_.kind, part, path, variable)
        return variable

    def _inner_struct(self, type_: Type, part: Part, path: str, variable: str) -> None:
        layout = element_layout(type_, self._version, part.is_compact)
        if not part.is_nullable:
            self.source.line(f"{variable} = {self._struct(layout, path + '.')}")
            return
        # KIP-893: a byte below zero for null; the varint zero where the field is tagged.
        presence = self.source.fresh("presence")
        self._fixed("b", presence)
        self._flush()
        is_null = f"{presence} == 0" if part.is_tagged else f"{presence} < 0"
        with self.source.block(f"if {is_null}:"):
            self.source.line(f"{variable} = None")
        with self.source.block("else:"):
            self.source.line(f"{variable} = {self._struct(layout, path + '.')}")

    def _length(self, part: Part, legacy: str, read_long: str) -> str:
        """Read a length; return the variable, which is -1 for null."""
        length = self.source.fresh("length")
        self._fixed("B" if part.is_compact else legacy, length)
        self._flush()
        if part.is_compact:
            with self.source.block(f"if {length} > 127:"):
                self.source.line(f"{length}, position = {read_long}(buffer, position - 1)")
            self.source.line(f"{length} -= 1")
        return length

    def _sized(self, kind: Kind, part: Part, path: str, variable: str) -> None:
        is_string = kind is Kind.STRING
        read_long = "read_long_string_length" if is_string else "read_uvarint"
        length = self._length(part, "h" if is_string else "i", read_long)
        stop = self.source.fresh("stop")
        self.source.line(f"{stop} = position + {length}")
        if part.is_nullable:
            with self.source.block(f"if {length} == -1:"):
                self.source.line(f"{variable} = None")
            with self.source.block("else:"):
                self._slice(kind, path, (variable, length, stop))
        else:
            self._slice(kind, path, (variable, length, stop))

    def _slice(self, kind: Kind, path: str, names: tuple[str, str, str]) -> None:
        variable, length, stop = names
        with self.source.block(f"if {length} < 0 or {stop} > end:"):
            self.source.line(f"refuse_length({self._where(path)}, {length}, end - position)")
        piece = f"buffer[position:{stop}]"
        if kind is Kind.STRING:
            piece = f'str({piece}, "utf-8")' if self._is_view else f"{piece}.decode()"
        elif kind is Kind.BYTES and self._is_view:
            piece = f"bytes({piece})"
        self.source.line(f"{variable} = {piece}")
        self.source.line(f"position = {stop}")

    # -- arrays --------------------------------------------------------------

    def _array(self, part: Part, path: str, variable: str) -> None:
        count = self._length(part, "i", "read_uvarint")
        if part.is_nullable:
            with self.source.block(f"if {count} == -1:"):
                self.source.line(f"{variable} = None")
            with self.source.block("else:"):
                self._elements(part, path, variable, count)
        else:
            self._elements(part, path, variable, count)

    def _elements(self, part: Part, path: str, variable: str, count: str) -> None:
        element = part.type.element
        assert element is not None
        # An element of zero bytes counts as one byte, or 2^31 of them would be allowed.
        least = max(1, size_min(element, self._version, part.is_compact))
        scaled = count if least == 1 else f"{count} * {least}"
        allowed = f"0 <= {count} <= {primitives.ARRAY_LENGTH_MAX}"
        with self.source.block(f"if not {allowed} or {scaled} > end - position:"):
            self.source.line(f"refuse_count({self._where(path)}, {count}, end - position)")
        if element.kind is Kind.UUID:
            piece = "bytes(buffer[at:at + 16])" if self._is_view else "buffer[at:at + 16]"
            stop = f"position + {count} * 16"
            self.source.line(f"{variable} = [{piece} for at in range(position, {stop}, 16)]")
            self.source.line(f"position = {stop}")
        elif element.kind in FORMATS and self._in_steps:
            self._values_in_steps(variable, count, FORMATS[element.kind], least)
        elif element.kind in FORMATS:
            unpacks = self.source.packings(FORMATS[element.kind], "unpack_from")
            self.source.line(f"{variable} = list({unpacks}[{count}](buffer, position))")
            self.source.line(f"position += {scaled}")
        else:
            self._loop(element, part, path, (variable, count))

    def _values_in_steps(self, variable: str, count: str, formats: str, width: int) -> None:
        left, taken = self.source.fresh("left"), self.source.fresh("taken")
        unpacks = self.source.packings(formats, "unpack_from")
        self.source.line(f"{variable} = []")
        self.source.line(f"{left} = {count}")
        with self.source.block(f"while {left}:"):
            self.source.line(f"{taken} = min({left}, {VALUES_PER_STEP})")
            self.source.line(f"{variable}.extend({unpacks}[{taken}](buffer, position))")
            self.source.line(f"position += {taken} * {width}")
            self.source.line(f"{left} -= {taken}")
            self.source.line("yield")

    def _loop(self, element: Type, part: Part, path: str, names: tuple[str, str]) -> None:
        variable, count = names
        append = self.source.fresh("append")
        self.source.line(f"{variable} = []")
        self.source.line(f"{append} = {variable}.append")
        inner = part._replace(is_nullable=False, type=element)
        with self.source.block(f"for _ in range({count}):"):
            if element.kind is Kind.STRUCT:
                layout = element_layout(element, self._version, part.is_compact)
                value = self._struct(layout, path + ".")
            else:
                value = self._value(element, inner, path)
                self._flush()
            self.source.line(f"{append}({value})")
            if self._in_steps:
                self.source.step(ELEMENTS_PER_STEP)
