"""Why a schema is incompatible, in words for people. Pure.

A registry answers texts such as ``{errorType:'X', description:'...', additionalInfo:'...'}``, and
after them the version and the text that were compared, and the settings. A text of another form is
shown as it is.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

_DIFFERENCE: Final = re.compile(
    r"\{errorType:'(?P<rule>[A-Z_]+)', description:'(?P<text>.*?)'"
    r"(?:, additionalInfo:'(?P<more>.*?)')?\}",
    re.DOTALL,
)
_BORDER: Final = re.compile(
    r"(?<=\}), (?=\{(?:errorType|oldSchemaVersion|oldSchema|validateFields):)"
)
_SETTINGS: Final = re.compile(r"compatibility: '(?P<level>\w+)'")
_VERSION: Final = re.compile(r"\{oldSchemaVersion: (?P<version>\d+)\}")


def reasons_of(messages: Sequence[str]) -> Iterator[str]:
    """Yield a line for each difference, and one for what was compared."""
    version = level = None
    for message in messages:
        if match := _DIFFERENCE.fullmatch(message):
            more = f" ({match['more']})" if match["more"] else ""
            yield f"{match['rule']}: {match['text']}{more}"
        elif match := _VERSION.fullmatch(message):
            version = match["version"]
        elif match := _SETTINGS.search(message):
            level = match["level"]
        elif not message.startswith("{oldSchema: "):
            yield message
    if version is not None:
        at = "" if level is None else f", compatibility {level}"
        yield f"compared with version {version}{at}"


def split_details(text: str) -> list[str]:
    """Split the details of a rejection, ``{...}, {...}``, at the borders of its parts."""
    return re.split(
        r"(?<=\}), (?=\{(?:errorType|oldSchemaVersion|oldSchema|validateFields):? ?)", text
    )
