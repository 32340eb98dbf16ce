# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The short way of an OffsetCommit: from the bytes of a frame to the bytes of its reply.

    header   OffsetCommit, version 8 to 10, the client id that the connection had before, no tags
    body     group, generation, member, instance, topics by name or by id, no tags anywhere
    group    is there, coordinated here, and does not object
    topics   are there with all the partitions that are named, each topic once
    log      nobody has to be waited for

Such a request is read, written and answered in one go (`CommitBatch`), by C where this is compiled.
Any other one is left alone: `CommitFastPath.serve` returns None, and has done nothing then. So no
refusal is worded here; the long way (`offsets.py`) says what is wrong. Both ways must come to the
same reply, log and state: a test holds them to it, request by request.

Every index is checked by our own comparisons before it is used.
"""

from typing import TYPE_CHECKING, Final

from ottla.api.routes import Caller
from ottla.coordinators.groups.kind import Committer
from ottla.coordinators.groups.offsets.commit_batch import REFUSED, CommitTopic
from ottla.protocol.types import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.coordinators.groups.offsets.quick_commits import QuickCommits
    from ottla.metadata.image import Image
    from ottla.metadata.topics import Topic
    from ottla.protocol import cython_stub as cython
else:
    try:
        import cython
    except ImportError:
        from ottla.protocol import cython_stub as cython

IS_COMPILED: Final[bool] = cython.compiled

FRAME_BYTES_MAX: Final = 64 << 10
"""Larger ones are served the long way."""

NAMES_MAX: Final = 1000
"""Groups, members and topics that are known by their bytes; then all are forgotten."""

# C's own numbers, so that comparing with them makes no object.
_FRAME_MAX: cython.Py_ssize_t = FRAME_BYTES_MAX
_KEY: cython.int = 8
_VERSION_FIRST: cython.int = 8  # from here on lengths are compact
_IDS_SINCE: cython.int = 10  # topics are named by their id
_ID_BYTES: cython.Py_ssize_t = 16
# Length and correlation id of a reply, no tags, no throttling.
_REPLY_HEAD: cython.Py_ssize_t = 13


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_at(data: bytearray, at: cython.Py_ssize_t, text: bytes) -> cython.bint:
    """Say whether ``text`` stands there; that there is room for it was checked."""
    left: cython.Py_ssize_t = len(text)
    while left > 0 and data[at + left - 1] == text[left - 1]:
        left -= 1
    return left == 0


@cython.cfunc
@cython.exceptval(check=False)
def _is_plain_header(
    data: bytearray, at: cython.Py_ssize_t, end: cython.Py_ssize_t, client: bytes
) -> cython.bint:
    """Say whether the frame begins as expected; there is a byte behind the header then."""
    if end - at < 10 + len(client) or end - at > _FRAME_MAX:
        return False
    if data[at] or data[at + 1] != _KEY or data[at + 2]:
        return False
    if data[at + 3] < _VERSION_FIRST or data[at + 3] > _IDS_SINCE:
        return False
    return _is_at(data, at + 8, client) and data[at + 8 + len(client)] == 0


@cython.cfunc
@cython.exceptval(check=False)
def _end_of_string(
    data: bytearray, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return where a short compact string that may be null ends; 0 where it is none."""
    length: cython.Py_ssize_t
    if at >= end or data[at] > 0x7F:
        return 0
    length = data[at]
    if length == 0:
        return at + 1
    return at + length if end - at >= length else 0


@cython.final
@cython.cclass
class _Named:
    """A topic of the image, and how commits know it."""

    topic: "Topic"
    form: CommitTopic


@cython.final
@cython.cclass
class _Plain:
    """What a request says before its topics, where it looks as expected."""

    version: cython.int
    group: str
    committer: Committer
    topics_at: cython.Py_ssize_t


@cython.final
@cython.cclass
class CommitFastPath:
    """Serves the OffsetCommit requests of a node that look as expected, and no others."""

    _commits: "QuickCommits"
    _image: "Callable[[], Image]"
    _texts: "dict[bytes, str | None]"
    _by_name: "dict[bytes, _Named]"
    _by_id: "dict[bytes, _Named]"

    def __init__(self, commits: "QuickCommits", image: "Callable[[], Image]") -> None:
        self._commits = commits
        self._image = image
        self._texts = {}
        self._by_name = {}
        self._by_id = {}

    @cython.locals(at=cython.Py_ssize_t, end=cython.Py_ssize_t, plain=_Plain, reply=bytearray)
    def serve(
        self, caller: Caller, client: bytes, data: bytearray, start: int, stop: int
    ) -> bytearray | None:
        """Serve the frame ``data[start:stop]``, its length left out; return the reply, whole.

        ``client`` is the client id as a header has it, with its length. None where the request
        has to be served the long way: then nothing has happened.
        """
        at, end = start, stop
        if not _is_plain_header(data, at, end, client):
            return None
        plain = self._read(data, at + 9 + len(client), end, data[at + 3])
        if plain is None:
            return None
        commit = self._commits.begin(plain.group, plain.committer)
        if commit is None:
            return None
        reply = bytearray(_REPLY_HEAD)
        reply[4:8] = data[at + 4 : at + 8]
        if not self._add_topics(plain, commit.batch, data, end, reply) or not commit.write():
            return None
        reply[:4] = (len(reply) - 4).to_bytes(4, "big")
        return reply

    @cython.cfunc
    @cython.locals(plain=_Plain)
    def _read(
        self,
        data: bytearray,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        version: cython.int,
    ) -> "_Plain | None":
        """Read what comes before the topics."""
        plain = _Plain()
        plain.version = version
        stop: cython.Py_ssize_t = _end_of_string(data, at, end)
        if stop - at < 2 or end - stop < 4:
            return None
        group: str | None = self._text(data, at, stop)
        generation = int.from_bytes(data[stop : stop + 4], "big", signed=True)
        at = stop + 4
        stop = _end_of_string(data, at, end)
        if stop - at < 1 or data[at] == 0:
            return None
        member: str | None = self._text(data, at, stop)
        at = stop
        stop = _end_of_string(data, at, end)
        if stop == 0:
            return None
        instance: str | None = None if data[at] == 0 else self._text(data, at, stop)
        if group is None or member is None or (instance is None and data[at] != 0):
            return None
        plain.group = group
        plain.committer = Committer(
            member, instance, generation, is_transactional=False, version=version
        )
        plain.topics_at = stop
        return plain

    @cython.cfunc
    @cython.locals(at=cython.Py_ssize_t, stop=cython.Py_ssize_t, left=cython.int, named=_Named)
    def _add_topics(
        self,
        plain: _Plain,
        batch: object,
        data: bytearray,
        end: cython.Py_ssize_t,
        reply: bytearray,
    ) -> cython.bint:
        """Take all topics up to the end of the request; False where one is not as expected."""
        at = plain.topics_at
        if at >= end or not 2 <= data[at] <= 0x7F:
            return False
        left = data[at] - 1
        reply.append(data[at])
        at += 1
        seen = []
        while left > 0:
            stop = at + _ID_BYTES
            if plain.version < _IDS_SINCE:
                stop = _end_of_string(data, at, end)
            if stop - at < 2 or stop > end:
                return False
            named = self._named(bytes(data[at:stop]), plain.version)
            if named is None or named in seen:
                return False
            seen.append(named)
            reply += data[at:stop]
            at = batch.add(named.form, data, stop, end, reply)  # type: ignore[attr-defined]
            if at == REFUSED:
                return False
            left -= 1
        reply.append(0)
        # Nothing behind the topics but the empty tags of the request.
        return at == end - 1 and data[at] == 0

    @cython.cfunc
    def _text(
        self, data: bytearray, start: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> "str | None":
        """Return a string by its bytes, length included; None where it is not UTF-8."""
        key = bytes(data[start:end])
        text = self._texts.get(key)
        if text is None:
            if len(self._texts) >= NAMES_MAX:
                self._texts.clear()
            try:
                text = key[1:].decode()
            except UnicodeDecodeError:
                return None
            self._texts[key] = text
        return text

    @cython.cfunc
    @cython.locals(named=_Named)
    def _named(self, key: bytes, version: cython.int) -> "_Named | None":
        """Return a topic by its name, length included, or by its id."""
        topics = self._image().topics
        known = self._by_id if version >= _IDS_SINCE else self._by_name
        named = known.get(key)
        if named is not None and topics.by_id.get(named.topic.id) is named.topic:
            return named
        if len(known) >= NAMES_MAX:
            known.clear()
        if version >= _IDS_SINCE:
            found, topic_id = topics.by_id.get(Uuid(key)), Uuid(key)
        else:
            try:
                found, topic_id = topics.named(key[1:].decode()), ZERO_UUID
            except UnicodeDecodeError:
                return None
        if found is None or not _is_whole(found):
            return None
        named = _Named()
        named.topic = found
        named.form = CommitTopic(found.name, topic_id, len(found.partitions))
        known[key] = named
        return named


def _is_whole(topic: "Topic") -> bool:
    """Say whether no number is missing among a topic's partitions."""
    return all(index in topic.partitions for index in range(len(topic.partitions)))
