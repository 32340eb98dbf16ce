"""Field-by-field comparison of two normalised outcomes."""

from dataclasses import dataclass

from tests.differential.normalise import Keyed

ABSENT = "absent"
TEXT_MAX = 160


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that differs. ``path`` is empty where the kind of outcome differs."""

    path: str
    kafka: str
    ottla: str

    def field(self) -> str:
        """Return the name of the field, the last part of the path."""
        return self.path.rpartition(".")[2]

    def struct(self) -> str:
        """Return the path of the struct that holds the field; it ends with a dot or is empty."""
        return self.path[: len(self.path) - len(self.field())]

    def is_error(self) -> bool:
        return self.field().endswith("error_code")


@dataclass(slots=True)
class Comparison:
    """The differences of two outcomes, and how many fields were compared to find them."""

    differences: list[Difference]
    compared: int = 0


def compare(kafka: object, ottla: object) -> Comparison:
    """Compare two normalised outcomes."""
    result = Comparison([])
    _walk(result, "", kafka, ottla)
    return result


def _walk(result: Comparison, path: str, kafka: object, ottla: object) -> None:
    if isinstance(kafka, dict) and isinstance(ottla, dict):
        for name in [*kafka, *(name for name in ottla if name not in kafka)]:
            inner = f"{path}.{name}" if path else name
            _walk(result, inner, kafka.get(name, ABSENT), ottla.get(name, ABSENT))
    elif isinstance(kafka, Keyed) and isinstance(ottla, Keyed):
        ours, theirs = dict(ottla.items), dict(kafka.items)
        for name in [*theirs, *(name for name in ours if name not in theirs)]:
            inner = f"{path}[{name}]"
            _walk(result, inner, theirs.get(name, ABSENT), ours.get(name, ABSENT))
        result.compared += 1
    elif isinstance(kafka, list) and isinstance(ottla, list) and len(kafka) == len(ottla):
        result.compared += 1
        for index, (theirs_, ours_) in enumerate(zip(kafka, ottla, strict=True)):
            _walk(result, f"{path}[{index}]", theirs_, ours_)
    else:
        result.compared += 1
        if type(kafka) is not type(ottla) or kafka != ottla:
            result.differences.append(Difference(path, text(kafka), text(ottla)))


def led_by(differences: list[Difference]) -> dict[Difference, Difference]:
    """Return difference -> the error code that explains it: one beside or above it that differs.

    An error code explains itself; what no error code explains is its own cause, too.
    """
    errors = {found.struct(): found for found in differences if found.is_error()}
    explained = {}
    for found in differences:
        ends = [end for end in errors if found.path.startswith(end)]
        is_free = found.is_error() or not ends
        explained[found] = found if is_free else errors[max(ends, key=len)]
    return explained


def text(value: object) -> str:
    """Return a value as the report shows it."""
    if isinstance(value, Keyed):
        value = [f"{name}: {text(item)}" for name, item in value.items]
    words = value if isinstance(value, str) and value == ABSENT else repr(value)
    return words if len(words) <= TEXT_MAX else words[: TEXT_MAX - 3] + "..."
