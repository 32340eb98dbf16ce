"""Read and write JSON texts as Confluent's registry does: compact, keys in their order.

Numbers are written as Java writes them (``1.0E7``), so that canonical texts of both registries are
equal. Objects keep the order of their keys; of a repeated key the last value counts.
"""

import json
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Final, NoReturn

from ottla.schemas.contract import InvalidSchema

Json = None | bool | int | float | Decimal | str | list["Json"] | dict[str, "Json"]

# Brackets within brackets. Recursive functions over a document use one or two frames per level.
JSON_DEPTH_MAX: Final = 200


def read_json(text: str, language: str, *, is_exact: bool = False) -> Json:
    """Parse ``text``. Raises InvalidSchema with the position, also if it is nested too deeply.

    With ``is_exact``, fractions are decimal numbers with all their digits.
    """
    try:
        value: Json = json.loads(
            text,
            parse_constant=_reject_constant,
            parse_float=Decimal if is_exact else None,
        )
    except RecursionError:
        raise _too_deep(language) from None
    except (ValueError, ArithmeticError) as error:  # also: numbers with too many digits
        raise InvalidSchema(f"Invalid {language} schema: not JSON: {error}") from None
    _check_depth(value, language)
    return value


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _too_deep(language: str) -> InvalidSchema:
    return InvalidSchema(
        f"Invalid {language} schema: nested more than {JSON_DEPTH_MAX} levels deep."
    )


def _check_depth(value: Json, language: str) -> None:
    level = [value]
    for _ in range(JSON_DEPTH_MAX):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return
    raise _too_deep(language)


def _children(value: Json) -> Iterator[Json]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def write_json(value: Json) -> str:
    """Return the compact text of ``value``."""
    parts: list[str] = []
    _write(value, parts)
    return "".join(parts)


def _write(value: Json, parts: list[str]) -> None:
    if isinstance(value, dict):
        separator = "{"
        for key, child in value.items():
            parts.append(separator + quote(key) + ":")
            _write(child, parts)
            separator = ","
        parts.append("{}" if separator == "{" else "}")
    elif isinstance(value, list):
        separator = "["
        for child in value:
            parts.append(separator)
            _write(child, parts)
            separator = ","
        parts.append("[]" if separator == "[" else "]")
    elif isinstance(value, str):
        parts.append(quote(value))
    elif isinstance(value, float):
        parts.append(java_double(value))
    elif isinstance(value, Decimal):
        parts.append(str(value))
    else:
        parts.append(json.dumps(value))


def quote(text: str) -> str:
    """Return ``text`` as a JSON string; lone surrogates, which UTF-8 lacks, stay escaped."""
    if text.isascii() or text.isprintable():
        return json.dumps(text, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False)


def java_double(value: float) -> str:
    """Return the text that Java's ``Double.toString`` gives."""
    if not math.isfinite(value):  # 1e999 is valid JSON
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value) if "e" not in repr(value) else f"{value:f}"
    mantissa, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        sign = "-" if value < 0 else ""
        whole, _, fraction = mantissa.lstrip("-").partition(".")
        digits = (whole + fraction).lstrip("0")
        leading = len(whole + fraction) - len(digits)
        digits = digits.rstrip("0") or "0"
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{len(whole) - 1 - leading}"
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def sort_keys(value: Json) -> Json:
    """Return ``value`` with the keys of every object in order."""
    if isinstance(value, dict):
        return {key: sort_keys(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [sort_keys(child) for child in value]
    return value
