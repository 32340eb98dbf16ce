"""Which part of which document a ``$ref`` means. Nothing is ever fetched from the network.

A document is the schema itself or a reference of it, registered under the reference's name and its
own ``$id``. Within a document, ``$id`` changes the base of relative references, and ``$anchor``
names a part.
"""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote, urldefrag, urljoin

from ottla.schemas.contract import InvalidSchema
from ottla.schemas.json_text import Json, read_json

DEFAULT_BASE: Final = "http://schema.invalid/"
META_SCHEMAS: Final = ("http://json-schema.org/draft", "https://json-schema.org/draft")
# The values of these keywords are data: what looks like an identifier in there is none.
DATA_KEYWORDS: Final = frozenset({"enum", "const", "default", "examples"})
# A chain of references to references.
CHAIN_MAX: Final = 100


class Documents:
    """The documents of one schema, indexed by address."""

    def __init__(self, root: Json, references: Mapping[str, str]) -> None:
        self._targets: dict[str, Json] = {}
        self._bases: dict[int, str] = {}
        # Objects are found by their address in memory: they must stay alive.
        self._roots = [root]
        for name, text in references.items():
            document = read_json(text, "JSON", is_exact=True)
            self._roots.append(document)
            base = urljoin(DEFAULT_BASE, name)
            self._index(document, base)
            for address in (name, f"./{name}", base):
                self._targets.setdefault(address, document)
        self._index(root, DEFAULT_BASE)
        self._targets.setdefault(DEFAULT_BASE, root)

    def base_of(self, node: Json) -> str:
        """Return the address that relative references within ``node`` start from."""
        return self._bases.get(id(node), DEFAULT_BASE)

    def resolve(self, reference: str, base: str) -> Json:
        """Return the schema that ``reference`` means; True for meta-schemas of JSON Schema.

        Raises:
            InvalidSchema: no document has such a part.
        """
        try:
            address, fragment = _joined(base, reference)
        except ValueError:
            raise InvalidSchema(f"Invalid JSON schema: {reference!r} is no address") from None
        if f"{address}#{fragment}" in self._targets:
            return self._targets[f"{address}#{fragment}"]
        plain = reference.partition("#")[0]
        if address in self._targets:
            document = self._targets[address]
        elif plain in self._targets:
            document = self._targets[plain]
        elif address.startswith(META_SCHEMAS):
            return True
        else:
            raise InvalidSchema(f"Invalid JSON schema: could not resolve $ref {reference!r}")
        return self._part(document, unquote(fragment), reference)

    def _part(self, document: Json, pointer: str, reference: str) -> Json:
        if pointer == "":
            return document
        if pointer.startswith("/"):
            for candidate in (pointer, pointer.replace("/$defs/", "/definitions/", 1)):
                try:
                    return _follow(document, candidate)
                except LookupError:
                    continue
        raise InvalidSchema(f"Invalid JSON schema: could not resolve $ref {reference!r}")

    def _index(self, document: Json, base: str) -> None:
        waiting = [(document, base)]
        while waiting:
            node, base = waiting.pop()
            if isinstance(node, dict):
                base = self._identify(node, base)
            waiting.extend((child, base) for child in _subnodes(node))

    def _identify(self, node: dict[str, Json], base: str) -> str:
        """Enter ``node`` under its identifiers. Returns the base within it."""
        for keyword in ("$id", "id"):
            identifier = node.get(keyword)
            if isinstance(identifier, str):
                base = self._enter(identifier, base, node)
                break
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := node.get(keyword), str):
                self._targets.setdefault(f"{urldefrag(base)[0]}#{anchor}", node)
        self._bases[id(node)] = base
        return base

    def _enter(self, identifier: str, base: str, node: Json) -> str:
        try:
            address, fragment = _joined(base, identifier)
        except ValueError:
            return base
        if fragment:  # draft 7: an anchor
            self._targets.setdefault(f"{address}#{fragment}", node)
            return base
        self._targets.setdefault(address, node)
        return address


def _joined(base: str, reference: str) -> tuple[str, str]:
    """Return address and fragment of a reference; a fragment alone keeps any kind of base."""
    if reference.startswith("#"):
        return urldefrag(base)[0], reference[1:]
    address, fragment = urldefrag(urljoin(base, reference))
    return address, fragment


def _subnodes(node: Json) -> Iterator[Json]:
    if isinstance(node, dict):
        yield from (value for key, value in node.items() if key not in DATA_KEYWORDS)
    elif isinstance(node, list):
        yield from node


def _follow(document: Json, pointer: str) -> Json:
    node = document
    for token in pointer[1:].split("/"):
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = node[token]
        elif isinstance(node, list) and token.isdecimal() and len(token) < 10:
            node = node[int(token)]
        else:
            raise LookupError(token)
    return node
