"""Generates the function that encodes one version of a message.

It has the shape ``write(out, message)``, appends to the bytearray ``out``, and mirrors
`reading`: fields of a fixed size and the length behind them are packed in one call, elements
of arrays in loops. In steps, it is a generator that yields every `ELEMENTS_PER_STEP` elements.
What does not fit its field fails somewhere in the middle, with whatever
error Python has for it; the caller removes the half that was written and asks `explain` why.
"""

from collections.abc import Callable

from ottla.protocol.codec import primitives
from ottla.protocol.codec.layout import (
    FORMATS,
    Layout,
    Part,
    default_of,
    element_layout,
    layout_of,
)
from ottla.protocol.codec.source import ELEMENTS_PER_STEP, Source
from ottla.protocol.schema import Kind, Message, Type

_HELPERS = {
    name: getattr(primitives, name) for name in ("uvarint", "long_string_length", "require_uuid")
}


def write_writer(
    struct: type[Message], version: int, is_flexible: bool, *, in_steps: bool = False
) -> Callable[..., object]:
    """Return the encoder of a version: a `primitives.Writer`, or a generator function in steps."""
    writer = _WriterWriter(version, in_steps)
    writer.write(layout_of(struct, version, is_flexible))
    title = f"write {struct.__name__} v{version}"
    return writer.source.function("write", title)  # type: ignore[return-value]


class _WriterWriter:
    def __init__(self, version: int, in_steps: bool) -> None:
        self._in_steps = in_steps
        self.source = Source()
        self.source.names.update(_HELPERS)
        self._version = version
        self._run: list[tuple[str, str]] = []  # (format, expression), not packed yet
        self._later: list[tuple[str, Layout]] = []  # functions that write tagged fields

    def write(self, layout: Layout) -> None:
        with self.source.block("def write(out, message):"):
            # A message of no fields, in a version without tags, is no bytes at all.
            self.source.line("pass")
            if self._in_steps:
                self.source.line("yield")
                self.source.line("steps = 0")
            self._struct(layout, "message")
            self._flush()
        self._in_steps = False  # tagged fields are written by functions of their own, in one go
        while self._later:
            self._tags_function(*self._later.pop())

    # -- runs of fixed size --------------------------------------------------

    def _fixed(self, formats: str, expression: str) -> None:
        self._run.append((formats, expression))

    def _packed(self, run: list[tuple[str, str]]) -> str:
        pack = self.source.packing("".join(f for f, _ in run), "pack")
        return f"{pack}({', '.join(e for _, e in run if e)})"

    def _flush(self) -> None:
        run, self._run = self._run, []
        if run:
            self.source.line(f"out += {self._packed(run)}")

    # -- structs -------------------------------------------------------------

    def _struct(self, layout: Layout, variable: str) -> None:
        for part in layout.parts:
            self._value(part.type, part, f"{variable}.{part.name}")
        if not layout.is_flexible:
            return
        if not layout.tagged:
            self._fixed("x", "")
            return
        tags = self.source.fresh("tags")
        self._later.append((tags, layout))
        self._flush()
        conditions = [
            f"{variable}.{part.name} == {self._default(layout, part)}" for _, part in layout.tagged
        ]
        with self.source.block(f"if {' and '.join(conditions)}:"):
            self.source.line("out.append(0)")
        with self.source.block("else:"):
            self.source.line(f"out += {tags}({variable})")

    def _default(self, layout: Layout, part: Part) -> str:
        return self.source.constant("default", default_of(layout.struct, part.name))

    def _tags_function(self, name: str, layout: Layout) -> None:
        with self.source.block(f"def {name}(struct):"):
            self.source.line("count = 0")
            self.source.line("tags = bytearray()")
            for tag, part in layout.tagged:
                default = self._default(layout, part)
                with self.source.block(f"if struct.{part.name} != {default}:"):
                    self.source.line("out = bytearray()")
                    self._value(part.type, part, f"struct.{part.name}")
                    self._flush()
                    self.source.line(f"tags += uvarint({tag})")
                    self.source.line("tags += uvarint(len(out))")
                    self.source.line("tags += out")
                    self.source.line("count += 1")
            self.source.line("return uvarint(count) + tags")

    # -- values --------------------------------------------------------------

    def _value(self, type_: Type, part: Part, expression: str) -> None:
        if type_.kind is Kind.UUID:
            self._fixed("16s", f"require_uuid({expression})")
        elif type_.kind is Kind.BOOL:
            # "?" would take None for False.
            self._fixed("B", expression)
        elif type_.kind in FORMATS:
            self._fixed(FORMATS[type_.kind], expression)
        elif type_.kind is Kind.STRUCT:
            self._inner_struct(type_, part, expression)
        elif type_.kind is Kind.ARRAY:
            self._array(part, expression)
        else:
            self._sized(type_.kind, part, expression)

    def _inner_struct(self, type_: Type, part: Part, expression: str) -> None:
        layout = element_layout(type_, self._version, part.is_compact)
        variable = self.source.fresh(part.name)
        self.source.line(f"{variable} = {expression}")
        if not part.is_nullable:
            self._struct(layout, variable)
            return
        self._flush()
        with self.source.block(f"if {variable} is None:"):
            self.source.line(f"out.append({0 if part.is_tagged else 255})")
        with self.source.block("else:"):
            self._fixed("B", "1")
            self._struct(layout, variable)
            self._flush()

    def _length(self, part: Part, length: str, legacy: str, write_long: str) -> None:
        """Write a length, and the run before it in the same breath where it is short."""
        if not part.is_compact:
            self._fixed(legacy, length)
            self._flush()
            return
        run, self._run = self._run, []
        with self.source.block(f"if {length} < 128:"):
            short = f"out += {self._packed([*run, ('B', length)])}"
            self.source.line(short if run else f"out.append({length})")
        with self.source.block("else:"):
            if run:
                self.source.line(f"out += {self._packed(run)}")
            self.source.line(f"out += {write_long}({length})")

    def _sized(self, kind: Kind, part: Part, expression: str) -> None:
        is_string = kind is Kind.STRING
        value, length = self.source.fresh(part.name), self.source.fresh("length")
        encoded = f"{expression}.encode()" if is_string else expression
        if part.is_nullable:
            self.source.line(f"{value} = {expression}")
            with self.source.block(f"if {value} is None:"):
                self.source.line(f'{value} = b""')
                self.source.line(f"{length} = {0 if part.is_compact else -1}")
            with self.source.block("else:"):
                if is_string:
                    self.source.line(f"{value} = {value}.encode()")
                self._count(part, value, length)
        else:
            self.source.line(f"{value} = {encoded}")
            self._count(part, value, length)
        write_long = "long_string_length" if is_string else "uvarint"
        self._length(part, length, "h" if is_string else "i", write_long)
        self.source.line(f"out += {value}")

    def _count(self, part: Part, value: str, length: str) -> None:
        self.source.line(f"{length} = len({value}){' + 1' if part.is_compact else ''}")

    # -- arrays --------------------------------------------------------------

    def _array(self, part: Part, expression: str) -> None:
        value, length = self.source.fresh(part.name), self.source.fresh("length")
        self.source.line(f"{value} = {expression}")
        if part.is_nullable:
            with self.source.block(f"if {value} is None:"):
                self.source.line(f"{value} = ()")
                self.source.line(f"{length} = {0 if part.is_compact else -1}")
            with self.source.block("else:"):
                self._count(part, value, length)
        else:
            self._count(part, value, length)
        self._length(part, length, "i", "uvarint")
        self._elements(part, value)

    def _elements(self, part: Part, value: str) -> None:
        element = part.type.element
        assert element is not None
        if element.kind in FORMATS and element.kind is not Kind.UUID:
            formats = "B" if element.kind is Kind.BOOL else FORMATS[element.kind]
            packs = self.source.packings(formats, "pack")
            self.source.line(f"out += {packs}[len({value})](*{value})")
            return
        item = self.source.fresh("item")
        inner = part._replace(is_nullable=False, type=element)
        with self.source.block(f"for {item} in {value}:"):
            if element.kind is Kind.STRUCT:
                self._struct(element_layout(element, self._version, part.is_compact), item)
            else:
                self._value(element, inner, item)
            self._flush()
            if self._in_steps:
                self.source.step(ELEMENTS_PER_STEP)
