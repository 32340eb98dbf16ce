"""The words behind ``ottla server``, read without a command-line library.

    server [-o FORM] FILE [--override k=v ...] [--stop-at-end-of-input] [-o FORM]
           [--rejoin-quorum | --truncate-metadata-at OFFSET]

A library that reads any command line takes as long to load as the broker itself, and a node is
often started. So the plain forms are read here; whatever is not understood at once (help, a
mistake, a form that is seldom used) is left to `ottla.cli.app`, which reads the same words and
finds the sentence to say about them. Both end in `ottla.cli.serving`.
"""

from collections.abc import Sequence

import msgspec

from ottla.cli.output import Output


class ServerWords(msgspec.Struct, frozen=True):
    """What a node is started with. ``overrides`` are ``key=value``, in the order given."""

    config: str
    overrides: tuple[str, ...] = ()
    is_bound_to_input: bool = False
    output: Output = Output.TABLE
    is_rejoining: bool = False
    truncate_metadata_at: int | None = None


def read_words(arguments: Sequence[str]) -> ServerWords | None:
    """Read what stands behind ``server``; None where it takes the whole library."""
    files: list[str] = []
    overrides: list[str] = []
    output, is_bound = Output.TABLE, False
    is_rejoining, truncate_at = False, None
    words = iter(arguments)
    for word in words:
        if word == "--stop-at-end-of-input":
            is_bound = True
        elif word == "--rejoin-quorum":
            is_rejoining = True
        elif word == "--truncate-metadata-at":
            text = next(words, "")
            if not (text.isascii() and text.isdigit()):
                return None
            truncate_at = int(text)
        elif word == "--override":
            overrides.append(next(words, ""))
        elif word in {"--output", "-o"}:
            form = next(words, "")
            if form not in set(Output):
                return None
            output = Output(form)
        elif word.startswith("-"):
            return None
        else:
            files.append(word)
    is_plain = len(files) == 1 and files[0] != "" and all("=" in each for each in overrides)
    if not is_plain or (is_rejoining and truncate_at is not None):
        return None
    return ServerWords(files[0], tuple(overrides), is_bound, output, is_rejoining, truncate_at)
