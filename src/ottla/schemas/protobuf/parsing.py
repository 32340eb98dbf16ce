"""Text of a .proto file to a ``FileDescriptorProto``: proto2, proto3 and editions.

A plain recursive-descent parser, bounded by the number of tokens and the nesting of messages. The
result is what protoc's parser gives before it resolves names: names of types as written, options as
``uninterpreted_option``. Only ``map_entry`` is set for maps, whose entry messages are made here.
"""

from typing import Final

from google.protobuf import descriptor_pb2 as pb

from ottla.schemas.protobuf.options import parse_bracketed_options, parse_option_statement
from ottla.schemas.protobuf.tokens import NESTING_MAX, TokenStream

NUMBER_MAX: Final = 536_870_911
INT32: Final = (-(2**31), 2**31 - 1)
LABELS: Final = {
    "optional": pb.FieldDescriptorProto.LABEL_OPTIONAL,
    "required": pb.FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": pb.FieldDescriptorProto.LABEL_REPEATED,
}
SCALARS: Final[dict[str, "pb.FieldDescriptorProto.Type"]] = {
    name: getattr(pb.FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in (
        "double",
        "float",
        "int32",
        "int64",
        "uint32",
        "uint64",
        "sint32",
        "sint64",
        "fixed32",
        "fixed64",
        "sfixed32",
        "sfixed64",
        "bool",
        "string",
        "bytes",
    )
}
EDITIONS: Final = {"2023": pb.EDITION_2023, "2024": getattr(pb, "EDITION_2024", pb.EDITION_2023)}


def parse_file(text: str) -> pb.FileDescriptorProto:
    """Parse a .proto file. Raises InvalidSchema."""
    return _FileParser(TokenStream(text)).parse()


class _FileParser:
    def __init__(self, stream: TokenStream) -> None:
        self._in = stream
        self._file = pb.FileDescriptorProto()
        self._depth = 0

    def parse(self) -> pb.FileDescriptorProto:
        while self._in.next.kind != "end":
            self._statement()
        return self._file

    def _statement(self) -> None:
        keyword = self._in.take() if self._in.next.kind == "name" else None
        match keyword.text if keyword else self._in.next.text:
            case ";":
                self._in.take()
            case "syntax" | "edition" if keyword:
                self._syntax(keyword.text)
            case "package" if keyword:
                if self._file.package:
                    self._in.fail("a second package")
                self._file.package = self._in.full_name().lstrip(".")
                self._in.expect(";")
            case "import" if keyword:
                self._import()
            case "option" if keyword:
                parse_option_statement(self._in, self._file.options.uninterpreted_option)
            case "message" if keyword:
                self._message(self._file.message_type.add())
            case "enum" if keyword:
                self._enum(self._file.enum_type.add())
            case "extend" if keyword:
                self._extend(self._file.extension, self._file.message_type)
            case "service" if keyword:
                self._service(self._file.service.add())
            case _:
                self._in.fail("expected a statement such as 'message'")

    def _syntax(self, keyword: str) -> None:
        self._in.expect("=")
        version = self._in.string()
        if keyword == "syntax" and version not in ("proto2", "proto3"):
            self._in.fail(f"unknown syntax {version!r}")
        if keyword == "edition":
            if version not in EDITIONS:
                self._in.fail(f"unknown edition {version!r}")
            self._file.edition = EDITIONS[version]
            version = "editions"
        self._file.syntax = version
        self._in.expect(";")

    def _import(self) -> None:
        kind = self._in.take().text if self._in.next.text in ("public", "weak") else ""
        if kind:
            indexes = self._file.public_dependency if kind == "public" else None
            if indexes is None:
                indexes = self._file.weak_dependency
            indexes.append(len(self._file.dependency))
        self._file.dependency.append(self._in.string())
        self._in.expect(";")

    def _enter(self) -> None:
        self._in.expect("{")
        self._depth += 1
        if self._depth > NESTING_MAX:
            self._in.fail(f"messages nested more than {NESTING_MAX} levels deep")

    def _leave(self) -> bool:
        if self._in.take_if("}"):
            self._depth -= 1
            return True
        return False

    def _message(self, message: pb.DescriptorProto) -> None:
        message.name = self._in.name()
        self._message_body(message)

    def _message_body(self, message: pb.DescriptorProto) -> None:
        self._enter()
        while not self._leave():
            self._message_statement(message)
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _message_statement(self, message: pb.DescriptorProto) -> None:
        keyword = self._in.next.text
        if self._in.following(1) == "." and keyword != "extend":
            keyword = ""  # a type in a package that has the name of a keyword
        match keyword:
            case ";":
                self._in.take()
            case "message":
                self._in.take()
                self._message(message.nested_type.add())
            case "enum":
                self._in.take()
                self._enum(message.enum_type.add())
            case "extend":
                self._in.take()
                self._extend(message.extension, message.nested_type)
            case "option":
                self._in.take()
                parse_option_statement(self._in, message.options.uninterpreted_option)
            case "oneof":
                self._in.take()
                self._oneof(message)
            case "reserved":
                self._in.take()
                self._reserved(message)
            case "extensions":
                self._in.take()
                self._extensions(message)
            case _:
                self._field(message.field.add(), message.nested_type)

    def _field(self, field: pb.FieldDescriptorProto, nested: "pb.RepeatedMessages") -> None:
        label = LABELS.get(self._in.next.text)
        if label is not None and self._in.following(1) != "=":
            keyword = self._in.take().text
            field.label = label
            if keyword == "optional" and self._file.syntax == "proto3":
                field.proto3_optional = True
        if self._in.next.text == "map" and self._in.following(1) == "<":
            self._map(field, nested)
        elif self._in.next.text == "group" and self._in.following(2) == "=":
            self._group(field, nested)
        else:
            self._type(field)
            self._name_and_number(field)
            self._in.expect(";")

    def _type(self, field: pb.FieldDescriptorProto) -> None:
        name = self._in.full_name()
        if name in SCALARS:
            field.type = SCALARS[name]
        else:
            field.type_name = name

    def _name_and_number(self, field: pb.FieldDescriptorProto) -> None:
        field.name = self._in.name()
        self._in.expect("=")
        field.number = self._in.integer(1, NUMBER_MAX)
        if self._in.next.text == "[":
            parse_bracketed_options(self._in, field.options.uninterpreted_option)
            _move_special_options(field)

    def _map(self, field: pb.FieldDescriptorProto, nested: "pb.RepeatedMessages") -> None:
        self._in.take()
        self._in.expect("<")
        entry = nested.add()
        entry.options.map_entry = True
        optional = pb.FieldDescriptorProto.LABEL_OPTIONAL
        for number, name in enumerate(("key", "value"), 1):
            part = entry.field.add(name=name, number=number, label=optional)
            self._type(part)
            self._in.expect("," if number == 1 else ">")
        field.label = pb.FieldDescriptorProto.LABEL_REPEATED
        self._name_and_number(field)
        entry.name = entry_name(field.name)
        field.type_name = entry.name
        field.ClearField("proto3_optional")
        self._in.expect(";")

    def _group(self, field: pb.FieldDescriptorProto, nested: "pb.RepeatedMessages") -> None:
        self._in.take()
        field.type = pb.FieldDescriptorProto.TYPE_GROUP
        self._name_and_number(field)
        message = nested.add(name=field.name)
        field.type_name = field.name
        field.name = field.name.lower()
        self._message_body(message)

    def _oneof(self, message: pb.DescriptorProto) -> None:
        index = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=self._in.name())
        self._enter()
        while not self._leave():
            if self._in.take_if(";"):
                continue
            if self._in.next.text == "option" and self._in.following(1) != "=":
                self._in.take()
                parse_option_statement(self._in, oneof.options.uninterpreted_option)
                continue
            field = message.field.add(oneof_index=index)
            self._field(field, message.nested_type)
            if not field.HasField("label"):
                field.label = pb.FieldDescriptorProto.LABEL_OPTIONAL

    def _extend(self, fields: "pb.RepeatedFields", nested: "pb.RepeatedMessages") -> None:
        extendee = self._in.full_name()
        self._enter()
        while not self._leave():
            if not self._in.take_if(";"):
                self._field(fields.add(extendee=extendee), nested)

    def _reserved(self, message: pb.DescriptorProto) -> None:
        while True:
            if self._in.next.kind in ("string", "name"):
                is_string = self._in.next.kind == "string"
                message.reserved_name.append(self._in.string() if is_string else self._in.name())
            else:
                start, end = self._range(1, NUMBER_MAX)
                message.reserved_range.add(start=start, end=end + 1)
            if not self._in.take_if(","):
                break
        self._in.expect(";")

    def _extensions(self, message: pb.DescriptorProto) -> None:
        ranges = []
        while True:
            start, end = self._range(1, NUMBER_MAX)
            ranges.append(message.extension_range.add(start=start, end=end + 1))
            if not self._in.take_if(","):
                break
        if self._in.next.text == "[":
            options = pb.ExtensionRangeOptions()
            parse_bracketed_options(self._in, options.uninterpreted_option)
            for extension_range in ranges:
                extension_range.options.CopyFrom(options)
        self._in.expect(";")

    def _range(self, lowest: int, highest: int) -> tuple[int, int]:
        start = self._in.integer(lowest, highest)
        if not self._in.take_if("to"):
            return start, start
        if self._in.take_if("max"):
            return start, highest
        return start, self._in.integer(start, highest)

    def _enum(self, enum: pb.EnumDescriptorProto) -> None:
        enum.name = self._in.name()
        self._enter()
        while not self._leave():
            keyword = "" if self._in.following(1) == "=" else self._in.next.text
            if self._in.take_if(";"):
                continue
            if keyword == "option":
                self._in.take()
                parse_option_statement(self._in, enum.options.uninterpreted_option)
            elif keyword == "reserved":
                self._in.take()
                self._enum_reserved(enum)
            else:
                value = enum.value.add(name=self._in.name())
                self._in.expect("=")
                value.number = self._in.integer(*INT32)
                if self._in.next.text == "[":
                    parse_bracketed_options(self._in, value.options.uninterpreted_option)
                self._in.expect(";")

    def _enum_reserved(self, enum: pb.EnumDescriptorProto) -> None:
        while True:
            if self._in.next.kind in ("string", "name"):
                is_string = self._in.next.kind == "string"
                enum.reserved_name.append(self._in.string() if is_string else self._in.name())
            else:
                start, end = self._range(*INT32)
                enum.reserved_range.add(start=start, end=end)
            if not self._in.take_if(","):
                break
        self._in.expect(";")

    def _service(self, service: pb.ServiceDescriptorProto) -> None:
        service.name = self._in.name()
        self._enter()
        while not self._leave():
            if self._in.take_if(";"):
                continue
            if self._in.take_if("option"):
                parse_option_statement(self._in, service.options.uninterpreted_option)
            else:
                self._in.expect("rpc")
                self._method(service.method.add())

    def _method(self, method: pb.MethodDescriptorProto) -> None:
        method.name = self._in.name()
        method.client_streaming, method.input_type = self._parameter()
        self._in.expect("returns")
        method.server_streaming, method.output_type = self._parameter()
        for name in ("client_streaming", "server_streaming"):
            if not getattr(method, name):
                method.ClearField(name)
        if self._in.take_if(";"):
            return
        self._enter()
        while not self._leave():
            if not self._in.take_if(";"):
                self._in.expect("option")
                parse_option_statement(self._in, method.options.uninterpreted_option)

    def _parameter(self) -> tuple[bool, str]:
        self._in.expect("(")
        is_stream = self._in.next.text == "stream" and self._in.following(1) != ")"
        if is_stream:
            self._in.take()
        name = self._in.full_name()
        self._in.expect(")")
        return is_stream, name


def entry_name(field_name: str) -> str:
    """Return the name of the message that holds an entry of a map field."""
    return "".join(part[:1].upper() + part[1:] for part in field_name.split("_")) + "Entry"


def _move_special_options(field: pb.FieldDescriptorProto) -> None:
    """Move ``default`` and ``json_name``, which are attributes of the field, out of its options."""
    others = []
    for option in field.options.uninterpreted_option:
        name = option.name[0].name_part
        if (
            len(option.name) > 1
            or option.name[0].is_extension
            or name
            not in (
                "default",
                "json_name",
            )
        ):
            others.append(option)
        elif name == "json_name":
            field.json_name = option.string_value.decode(errors="replace")
        else:
            field.default_value = _default_text(option)
    if len(others) < len(field.options.uninterpreted_option):
        copies = [
            pb.UninterpretedOption.FromString(option.SerializeToString()) for option in others
        ]
        field.ClearField("options")
        if copies:
            field.options.uninterpreted_option.extend(copies)


def _default_text(option: pb.UninterpretedOption) -> str:
    if option.HasField("string_value"):
        return str(option.string_value.decode(errors="replace"))
    if option.HasField("identifier_value"):
        return str(option.identifier_value)
    if option.HasField("positive_int_value"):
        return str(option.positive_int_value)
    if option.HasField("negative_int_value"):
        return str(option.negative_int_value)
    return repr(option.double_value)
