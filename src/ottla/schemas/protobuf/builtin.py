"""Files that every Protobuf schema may import without a reference.

``google/protobuf/*`` come with the library; ``google/type/*`` and ``confluent/*`` are declared
here.
"""

from functools import cache
from importlib import import_module
from typing import Final

from google.protobuf import descriptor_pb2 as pb

from ottla.schemas.protobuf.parsing import parse_file

_LIBRARY: Final = (
    "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct",
    "timestamp", "type", "wrappers",
)  # fmt: skip
_P3: Final = 'syntax = "proto3"; package google.type; '
_TEXTS: Final[dict[str, str]] = {
    "confluent/meta.proto": """
        syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
        message Meta {
          string doc = 1; map<string, string> params = 2; repeated string tags = 3;
        }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
    """,
    "confluent/type/decimal.proto": """
        syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
    """,
    "google/type/calendar_period.proto": _P3
    + """enum CalendarPeriod {
        CALENDAR_PERIOD_UNSPECIFIED = 0; DAY = 1; WEEK = 2; FORTNIGHT = 3; MONTH = 4; QUARTER = 5;
        HALF = 6; YEAR = 7; }""",
    "google/type/color.proto": _P3
    + """import "google/protobuf/wrappers.proto";
        message Color { float red = 1; float green = 2; float blue = 3;
          google.protobuf.FloatValue alpha = 4; }""",
    "google/type/date.proto": _P3
    + "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }",
    "google/type/datetime.proto": _P3
    + """import "google/protobuf/duration.proto";
        message DateTime { int32 year = 1; int32 month = 2; int32 day = 3; int32 hours = 4;
          int32 minutes = 5; int32 seconds = 6; int32 nanos = 7;
          oneof time_offset { google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9; } }
        message TimeZone { string id = 1; string version = 2; }""",
    "google/type/dayofweek.proto": _P3
    + """enum DayOfWeek { DAY_OF_WEEK_UNSPECIFIED = 0; MONDAY = 1; TUESDAY = 2; WEDNESDAY = 3;
        THURSDAY = 4; FRIDAY = 5; SATURDAY = 6; SUNDAY = 7; }""",
    "google/type/decimal.proto": _P3 + "message Decimal { string value = 1; }",
    "google/type/expr.proto": _P3
    + "message Expr { string expression = 1; string title = 2; string description = 3;"
    " string location = 4; }",
    "google/type/fraction.proto": _P3
    + "message Fraction { int64 numerator = 1; int64 denominator = 2; }",
    "google/type/interval.proto": _P3
    + """import "google/protobuf/timestamp.proto";
        message Interval { google.protobuf.Timestamp start_time = 1;
          google.protobuf.Timestamp end_time = 2; }""",
    "google/type/latlng.proto": _P3
    + "message LatLng { double latitude = 1; double longitude = 2; }",
    "google/type/localized_text.proto": _P3
    + "message LocalizedText { string text = 1; string language_code = 2; }",
    "google/type/money.proto": _P3
    + "message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }",
    "google/type/month.proto": _P3
    + """enum Month { MONTH_UNSPECIFIED = 0; JANUARY = 1; FEBRUARY = 2; MARCH = 3; APRIL = 4;
        MAY = 5; JUNE = 6; JULY = 7; AUGUST = 8; SEPTEMBER = 9; OCTOBER = 10; NOVEMBER = 11;
        DECEMBER = 12; }""",
    "google/type/phone_number.proto": _P3
    + """message PhoneNumber {
          message ShortCode { string region_code = 1; string number = 2; }
          oneof kind { string e164_number = 1; ShortCode short_code = 2; }
          string extension = 3; }""",
    "google/type/postal_address.proto": _P3
    + """message PostalAddress { int32 revision = 1; string region_code = 2;
          string language_code = 3; string postal_code = 4; string sorting_code = 5;
          string administrative_area = 6; string locality = 7; string sublocality = 8;
          repeated string address_lines = 9; repeated string recipients = 10;
          string organization = 11; }""",
    "google/type/quaternion.proto": _P3
    + "message Quaternion { double x = 1; double y = 2; double z = 3; double w = 4; }",
    "google/type/timeofday.proto": _P3
    + "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3;"
    " int32 nanos = 4; }",
}


@cache
def builtin_file(name: str) -> pb.FileDescriptorProto | None:
    """Return a built-in file by the name it is imported by. It must not be changed."""
    if name in _TEXTS:
        file = parse_file(_TEXTS[name])
        file.name = name
        return file
    stem = name.removeprefix("google/protobuf/").removesuffix(".proto")
    if name == f"google/protobuf/{stem}.proto" and stem in _LIBRARY:
        module = import_module(f"google.protobuf.{stem}_pb2")
        return pb.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    return None
