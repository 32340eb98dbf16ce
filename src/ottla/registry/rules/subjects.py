"""Names of subjects and contexts.

    name               in the default context, which is ``.``
    :.context:name     in a context, whose name begins with a dot
    :.context:         the context itself, in settings of all its subjects
    :.__GLOBAL:        settings of all contexts
    :*:                all contexts, in filters

A context is a namespace with its own ids. Settings of a subject without any are those of its
context, then those of ``:.__GLOBAL:``.
"""

from typing import Final, NamedTuple

DEFAULT_CONTEXT: Final = "."
GLOBAL_CONTEXT: Final = ".__GLOBAL"
ALL_CONTEXTS: Final = ":*:"
_PREFIX: Final = ":."
_RESERVED: Final = frozenset({"__GLOBAL", "__EMPTY"})


class BadContext(ValueError):
    """The name of a context that contains a colon."""


class QualifiedSubject(NamedTuple):
    """A context, which is ``*`` in a filter for all, and a subject, empty for the context."""

    context: str
    subject: str

    @property
    def prefix(self) -> str:
        """The part of the name before the subject; empty in the default context."""
        return context_prefix(self.context)

    def __str__(self) -> str:
        return self.prefix + self.subject


def context_prefix(context: str) -> str:
    """Return the prefix of the subjects of a context."""
    return "" if context == DEFAULT_CONTEXT else f":{context}:"


def parse_subject(text: str) -> QualifiedSubject:
    """Split a name into context and subject."""
    if text.startswith(_PREFIX):
        context, _, subject = text[1:].partition(":")
        return QualifiedSubject(context, subject)
    if text.startswith(ALL_CONTEXTS):
        return QualifiedSubject("*", text[len(ALL_CONTEXTS) :])
    return QualifiedSubject(DEFAULT_CONTEXT, text)


def normalise_subject(text: str) -> str:
    """Return the one name of a subject: ``:.:name`` is ``name``."""
    return str(parse_subject(text))


def context_of(subject: str) -> str:
    """Return the context of a subject."""
    return parse_subject(subject).context


def qualify(parent: str, subject: str) -> str:
    """Return the name of a subject that a schema of subject ``parent`` refers to."""
    parsed = parse_subject(subject)
    if parsed.context != DEFAULT_CONTEXT:
        return str(parsed)
    return str(QualifiedSubject(context_of(parent), parsed.subject))


def normalise_context(text: str) -> str:
    """Return the prefix of the subjects of a context that a client named in any way.

    Raises:
        BadContext
    """
    name = text.removeprefix(":").removesuffix(":")
    if ":" in name:
        raise BadContext(f"Context name '{name}' cannot contain a colon")
    if not name.startswith("."):
        name = f".{name}"
    return context_prefix(name)


def is_valid_subject(text: str, *, is_setting: bool = False) -> bool:
    """Say whether a schema may be registered, or with ``is_setting`` a setting be kept, there."""
    parsed = parse_subject(text)
    if parsed.context == "*" or parsed.subject in _RESERVED:
        return False
    if any(ord(character) < 32 or 127 <= ord(character) < 160 for character in text):
        return False
    return is_setting or (parsed.context != GLOBAL_CONTEXT and bool(parsed.subject))


def is_match(pattern: str | None, subject: str) -> bool:
    """Say whether a subject is the named one, in the named context, or whether all are meant."""
    if pattern is None:
        return context_of(subject) == DEFAULT_CONTEXT
    parsed = parse_subject(pattern)
    if parsed.context == GLOBAL_CONTEXT and not parsed.subject:
        return True
    if parsed.subject:
        return subject == str(parsed)
    return context_of(subject) == parsed.context


def has_prefix(prefix: str, subject: str) -> bool:
    """Say whether a subject begins with a prefix, which may name all contexts by ``:*:``."""
    if not prefix.startswith(ALL_CONTEXTS):
        return subject.startswith(prefix)
    return parse_subject(subject).subject.startswith(prefix[len(ALL_CONTEXTS) :])
