# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The fast path of OffsetCommit: from the bytes of a frame to the bytes of its reply.

It serves requests of one form:

    header   OffsetCommit, version 8 to 10, same client id as the previous request, no tags
    body     group, generation, member, instance, topics by name or by id, no tags anywhere
    group    exists, is coordinated here, and accepts the commit
    topics   exist with all the partitions named, each topic once
    access   the general path has allowed the caller to read the group and every topic
    log      the append is committed at once: no follower has to acknowledge it

Such a request is read, written and answered in one pass (`CommitBatch`), by C if this module is
compiled. `CommitFastPath.serve` returns None for any other request, having changed nothing; the
general path (`offsets.py`) serves it and returns its errors. Both paths check the group with
`check_commit` and set timers with `commit_timers`; a test compares their replies, logs and states
request by request.

Every index is compared with the bounds before it is used.
"""

from typing import TYPE_CHECKING, Final

from ottla.api.security.access_decisions import AccessDecisions
from ottla.api.surface.routes import Caller
from ottla.coordinators.groups.kind import Committer
from ottla.coordinators.groups.offsets.commit_batch import REFUSED, CommitBatch, CommitTopic
from ottla.coordinators.groups.offsets.rules import check_commit
from ottla.coordinators.groups.requests import commit_timers
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.types import ZERO_UUID, Millis, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.coordinators.groups.machine import GroupMachine
    from ottla.coordinators.groups.service import GroupCoordinator
    from ottla.coordinators.shard import Shard
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
"""Larger requests take the general path."""

NAMES_MAX: Final = 1000
"""Topics, and groups with a member, cached by their bytes; a full cache is dropped whole."""

# C integers: comparing with them creates no Python object.
_FRAME_MAX: cython.Py_ssize_t = FRAME_BYTES_MAX
_KEY: cython.int = 8
_VERSION_FIRST: cython.int = 8  # from here on lengths are compact
_IDS_SINCE: cython.int = 10  # topics are named by their id
_ID_BYTES: cython.Py_ssize_t = 16
_VERSIONS: bytes = bytes(range(16))  # a version as one byte
# Length and correlation id of a reply, no tags, no throttling.
_REPLY_HEAD: cython.Py_ssize_t = 13


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_at(data: bytearray, at: cython.Py_ssize_t, text: bytes) -> cython.bint:
    """Return whether ``text`` is at this position; the caller has checked that it fits."""
    left: cython.Py_ssize_t = len(text)
    while left > 0 and data[at + left - 1] == text[left - 1]:
        left -= 1
    return left == 0


@cython.cfunc
@cython.exceptval(check=False)
def _is_plain_header(
    data: bytearray, at: cython.Py_ssize_t, end: cython.Py_ssize_t, client: bytes
) -> cython.bint:
    """Return whether the header has the expected form and is followed by at least one byte."""
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
    """Return where a compact string below 128 bytes, or null, ends; 0 if it is malformed."""
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
    """A topic of the image, and its form in commits."""

    topic: "Topic"
    form: CommitTopic


@cython.final
@cython.cclass
class _Plain:
    """The fields of a request before its topics, and how many bytes they are. Never changed."""

    version: cython.int
    group: str
    committer: Committer
    size: cython.Py_ssize_t


@cython.cfunc
@cython.locals(plain=_Plain)
def _parse_fields(fields: bytes, version: cython.int) -> "_Plain | None":
    """Parse the fields before the topics, whose lengths are checked; None if one is not UTF-8."""
    stop: cython.Py_ssize_t = fields[0]
    member: cython.Py_ssize_t = stop + 4
    instance: cython.Py_ssize_t = member + fields[member]
    size: cython.Py_ssize_t = instance + max(fields[instance], 1)
    plain = _Plain()
    try:
        plain.group = fields[1:stop].decode()
        plain.committer = Committer(
            fields[member + 1 : instance].decode(),
            fields[instance + 1 : size].decode() if fields[instance] else None,
            int.from_bytes(fields[stop:member], "big", signed=True),
            is_transactional=False,
            version=version,
        )
    except UnicodeDecodeError:
        return None
    plain.version = version
    plain.size = size
    return plain


@cython.final
@cython.cclass
class _Commit:
    """A commit that its group accepts, while it is filled and written."""

    shard: "Shard[GroupMachine]"
    plain: _Plain
    now: Millis
    batch: CommitBatch

    def replay(self) -> None:
        """Apply the written offsets to the state, as `decide_offset_commit` does."""
        shard, group_id = self.shard, self.plain.group
        machine = shard.machine
        machine.offsets.put_commit(group_id, self.batch)
        group = machine.groups[group_id]
        shard.change_timers(commit_timers(machine, group, self.plain.committer.member_id, self.now))


@cython.final
@cython.cclass
class CommitFastPath:
    """Serves the OffsetCommit requests of a broker that have the expected form, and no others."""

    _groups: "GroupCoordinator"
    _image: "Callable[[], Image]"
    _group_reads: AccessDecisions
    _topic_reads: AccessDecisions
    _plains: "dict[bytes, _Plain]"
    _by_name: "dict[bytes, _Named]"
    _by_id: "dict[bytes, _Named]"

    def __init__(
        self,
        groups: "GroupCoordinator",
        image: "Callable[[], Image]",
        group_reads: AccessDecisions,
        topic_reads: AccessDecisions,
    ) -> None:
        self._groups = groups
        self._image = image
        self._group_reads = group_reads
        self._topic_reads = topic_reads
        self._plains = {}
        self._by_name = {}
        self._by_id = {}

    @cython.locals(
        at=cython.Py_ssize_t, end=cython.Py_ssize_t, plain=_Plain, commit=_Commit, reply=bytearray,
        fields=cython.Py_ssize_t,
    )  # fmt: skip
    def serve(
        self, caller: Caller, client: bytes, data: bytearray, start: int, stop: int
    ) -> bytearray | None:
        """Serve the frame ``data[start:stop]``, without its length; return the whole reply.

        ``client`` is the client id with its length as encoded in a header. None if the request
        has to take the general path: then nothing has changed.
        """
        at, end = start, stop
        if not _is_plain_header(data, at, end, client):
            return None
        fields = at + 9 + len(client)
        plain = self._plain(data, fields, end, data[at + 3])
        if plain is None or not self._group_reads.is_allowed(caller, plain.group):
            return None
        commit = self._begin(plain)
        if commit is None:
            return None
        reply = bytearray(_REPLY_HEAD)
        reply[4:8] = data[at + 4 : at + 8]
        if not self._add_topics(caller, commit, data, fields + plain.size, end, reply):
            return None
        batch = commit.batch
        if not commit.shard.write_at_once(batch.seal(), batch.count, commit.now, commit.replay):
            return None
        reply[:4] = (len(reply) - 4).to_bytes(4, "big")
        return reply

    @cython.cfunc
    @cython.locals(commit=_Commit)
    def _begin(self, plain: _Plain) -> "_Commit | None":
        """Return an empty commit; None if the group does not exist here or rejects it."""
        groups = self._groups
        try:
            shard = groups.runtime.shard(groups.runtime.index_of(plain.group))
        except Fault:
            return None
        group = shard.machine.groups.get(plain.group)
        if group is None or check_commit(group, plain.committer) is not ErrorCode.NONE:
            return None
        commit = _Commit()
        commit.shard = shard
        commit.plain = plain
        commit.now = shard.now()
        metadata_max = groups.settings.offset_metadata_max_bytes
        commit.batch = CommitBatch(plain.group, commit.now, shard.end, metadata_max)
        return commit

    @cython.cfunc
    @cython.locals(plain=_Plain)
    def _plain(
        self,
        data: bytearray,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        version: cython.int,
    ) -> "_Plain | None":
        """Return the fields before the topics; those of earlier requests are kept by their bytes.

        Group, generation, member and instance follow each other. None if one has another form.
        """
        stop: cython.Py_ssize_t = _end_of_string(data, at, end)
        if stop - at < 2 or end - stop < 4:
            return None
        member: cython.Py_ssize_t = stop + 4
        stop = _end_of_string(data, member, end)
        if stop - member < 1 or data[member] == 0:
            return None
        stop = _end_of_string(data, stop, end)
        if stop == 0:
            return None
        key = bytes(data[at:stop]) + _VERSIONS[version : version + 1]
        plain = self._plains.get(key)
        if plain is None:
            if len(self._plains) >= NAMES_MAX:
                self._plains.clear()
            plain = _parse_fields(key, version)
            if plain is not None:
                self._plains[key] = plain
        return plain

    @cython.cfunc
    @cython.locals(
        at=cython.Py_ssize_t, stop=cython.Py_ssize_t, left=cython.int, named=_Named, plain=_Plain
    )
    def _add_topics(
        self,
        caller: Caller,
        commit: _Commit,
        data: bytearray,
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        reply: bytearray,
    ) -> cython.bint:
        """Add all topics up to the end of the request; False if one has another form."""
        plain, batch, at = commit.plain, commit.batch, start
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
            if not self._topic_reads.is_allowed(caller, named.topic.name):
                return False
            seen.append(named)
            reply += data[at:stop]
            at = batch.add(named.form, data, stop, end, reply)
            if at == REFUSED:
                return False
            left -= 1
        reply.append(0)
        # Only the empty tags of the request follow the topics.
        return at == end - 1 and data[at] == 0

    @cython.cfunc
    @cython.locals(named=_Named)
    def _named(self, key: bytes, version: cython.int) -> "_Named | None":
        """Return a topic by its name, length included, or by its id; None if it is unknown."""
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
    """Return whether the partitions of a topic are numbered without a gap."""
    return all(index in topic.partitions for index in range(len(topic.partitions)))
