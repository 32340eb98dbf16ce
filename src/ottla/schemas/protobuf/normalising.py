"""Order everything in a file whose order has no meaning, as ``normalize=true`` asks for.

Imports, options, fields, oneofs, enum values and reserved numbers are sorted and names of types
resolved. Messages, enums and services keep their order: message indexes in records depend on it.
The first value of an enum stays the first, because it is the default.
"""

from google.protobuf import descriptor_pb2 as pb

from ottla.schemas.protobuf.interpreting import holders_of
from ottla.schemas.protobuf.linking import Linked, messages_of
from ottla.schemas.protobuf.options import merged
from ottla.schemas.protobuf.printing import print_file


def normalised_text(linked: Linked) -> str:
    """Return the normalised text of the root file of ``linked``."""
    file = pb.FileDescriptorProto.FromString(linked.root.SerializeToString())
    file.name = ""
    _sort_imports(file)
    _resolve_options(file, linked)
    _sort_extensions(file.extension)
    for enum in file.enum_type:
        _sort_enum(enum)
    for message, _ in messages_of(file):
        _sort_message(message)
    return print_file(file, is_sorted=True)


def _resolve_options(file: pb.FileDescriptorProto, linked: Linked) -> None:
    """Replace the names of custom options by their full names, and join those of one message."""
    for holder, scope in holders_of(file):
        if not holder.HasField("options"):
            continue
        for option in holder.options.uninterpreted_option:
            for part in option.name:
                if part.is_extension:
                    name = linked.find_extension(part.name_part, scope)
                    part.name_part = name or part.name_part.lstrip(".")
        options = list(merged(holder.options.uninterpreted_option))
        copies = [pb.UninterpretedOption.FromString(o.SerializeToString()) for o in options]
        del holder.options.uninterpreted_option[:]
        holder.options.uninterpreted_option.extend(copies)


def _sort_imports(file: pb.FileDescriptorProto) -> None:
    public = {file.dependency[i] for i in file.public_dependency}
    weak = {file.dependency[i] for i in file.weak_dependency}
    names = sorted(set(file.dependency))
    del file.dependency[:], file.public_dependency[:], file.weak_dependency[:]
    file.dependency.extend(names)
    file.public_dependency.extend(i for i, name in enumerate(names) if name in public)
    file.weak_dependency.extend(i for i, name in enumerate(names) if name in weak)


def _sort_message(message: pb.DescriptorProto) -> None:
    fields = [pb.FieldDescriptorProto.FromString(f.SerializeToString()) for f in message.field]
    fields.sort(key=lambda field: field.number)
    order: dict[int, int] = {}
    for field in fields:
        if field.HasField("oneof_index"):
            order.setdefault(field.oneof_index, len(order))
    for index in range(len(message.oneof_decl)):
        order.setdefault(index, len(order))
    oneofs = [(order[i], o.SerializeToString()) for i, o in enumerate(message.oneof_decl)]
    for field in fields:
        if field.HasField("oneof_index"):
            field.oneof_index = order[field.oneof_index]
    del message.field[:], message.oneof_decl[:]
    message.field.extend(fields)
    message.oneof_decl.extend(
        pb.OneofDescriptorProto.FromString(data) for _, data in sorted(oneofs)
    )
    _sort_extensions(message.extension)
    _sort_ranges(message.reserved_range)
    names = sorted(message.reserved_name)
    del message.reserved_name[:]
    message.reserved_name.extend(names)
    for enum in message.enum_type:
        _sort_enum(enum)


def _sort_extensions(extensions: "pb.RepeatedFields") -> None:
    fields = [pb.FieldDescriptorProto.FromString(f.SerializeToString()) for f in extensions]
    order: dict[str, int] = {}
    for field in fields:
        order.setdefault(field.extendee, len(order))
    fields.sort(key=lambda field: (order[field.extendee], field.number))
    del extensions[:]
    extensions.extend(fields)


def _sort_enum(enum: pb.EnumDescriptorProto) -> None:
    values = [pb.EnumValueDescriptorProto.FromString(v.SerializeToString()) for v in enum.value]
    rest = sorted(values[1:], key=lambda value: (value.number, value.name))
    del enum.value[:]
    enum.value.extend([*values[:1], *rest])
    _sort_ranges(enum.reserved_range)
    names = sorted(enum.reserved_name)
    del enum.reserved_name[:]
    enum.reserved_name.extend(names)


def _sort_ranges(ranges: "pb.RepeatedRanges") -> None:
    pairs = sorted((part.start, part.end) for part in ranges)
    del ranges[:]
    for start, end in pairs:
        ranges.add(start=start, end=end)
