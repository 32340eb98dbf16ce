"""The follower: fetch, append, truncate, load snapshots (KIP-595, KIP-630).

One request at a time. The next fetch is sent only when everything appended is flushed, so all
records before its offset are durable. Observers do the same and never count for the majority.
"""

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import Millis, NodeId, Offset
from ottla.raft.core.effects import InstallSnapshot, Rejoined, WriteSnapshotChunk
from ottla.raft.core.elections import is_settled
from ottla.raft.core.events import SnapshotInstalled, SnapshotRejected
from ottla.raft.core.log_view import LogPosition, truncation_offset
from ottla.raft.core.messages import (
    Batches,
    Chunk,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    FetchSnapshotRequest,
    UpdateVoterRequest,
    VoterChangeReply,
)
from ottla.raft.core.outstanding import InFlight
from ottla.raft.core.quorum import Quorum
from ottla.raft.core.roles import Download, Follower
from ottla.raft.core.voters import Endpoint, find_endpoint

# Ids of bootstrap servers, whose real ids are unknown, count down from here.
BOOTSTRAP_ID_FIRST = -2
# A leader that refuses connections twice in a row has stopped. A retry backoff lies between.
REFUSALS = 2
# The followers of a stopped leader learn of it at once. Each gives the one before it, by node id,
# this time to be elected: two candidates at a time would split the votes.
SUCCESSION_MS = 100


class CommittedLogCutError(Exception):
    """A leader asked to truncate committed records: data was lost. The node must stop."""


# -- replies -----------------------------------------------------------------


def on_fetch_reply(quorum: Quorum, sent: InFlight, reply: FetchReply) -> None:
    """Handle a fetch reply: truncate, load a snapshot, or append records."""
    if is_settled(quorum, sent, reply.error, reply.leader):
        return
    role = quorum.role
    if not isinstance(role, Follower) or reply.leader.leader_id != role.leader_id:
        quorum.outstanding.pause(sent.to, quorum.now)
        return
    if reply.diverging is not None:
        _cut(quorum, reply.diverging)
    elif reply.snapshot is not None:
        _begin_download(quorum, role, sent, reply.snapshot)
    elif isinstance(reply.records, Batches) and not _append(quorum, role, reply.records):
        quorum.outstanding.pause(sent.to, quorum.now)
        return
    if reply.high_watermark is not None and reply.diverging is None and reply.snapshot is None:
        role.leader_high_watermark = reply.high_watermark
        follow_high_watermark(quorum)
    _record_contact(quorum, role)


def _record_contact(quorum: Quorum, role: Follower) -> None:
    role.fetch_deadline = Millis(quorum.now + quorum.settings.fetch_timeout_ms)
    role.has_fetched = True
    role.refusals = 0


def on_unanswered(quorum: Quorum, sent: InFlight, *, is_refused: bool) -> None:
    """Give up a leader whose process has stopped, without waiting for the fetch timeout.

    A refused connection is weaker evidence than silence: the pre-vote is won only if a majority of
    the voters has lost the leader, too.
    """
    role = quorum.role
    if not isinstance(role, Follower) or sent.to != role.leader_id:
        return
    role.refusals = role.refusals + 1 if is_refused else 0
    if role.refusals != REFUSALS or not quorum.settings.is_refusal_evidence:
        return
    others = [each for each in quorum.voters.ids if each != role.leader_id]
    place = sum(each < quorum.settings.node_id for each in others)
    deadline = Millis(quorum.now + place * SUCCESSION_MS)
    role.fetch_deadline = min(role.fetch_deadline, deadline)
    role.has_fetched = False


def _cut(quorum: Quorum, diverging: LogPosition) -> None:
    offset = truncation_offset(quorum.log, diverging)
    if quorum.high_watermark is not None and offset < quorum.high_watermark:
        raise CommittedLogCutError(
            f"truncation to {offset} requested, below high watermark {quorum.high_watermark}"
        )
    if offset < quorum.end.offset:
        quorum.truncate(offset)


def _append(quorum: Quorum, role: Follower, batches: Batches) -> bool:
    """Append batches if they continue this log; return whether they did."""
    fits = (
        batches.base_offset == quorum.end.offset
        and batches.end.offset > batches.base_offset
        and quorum.end.epoch <= batches.end.epoch <= role.epoch
    )
    if fits:
        quorum.append_fetched(batches)
    return fits


def follow_high_watermark(quorum: Quorum) -> None:
    """Adopt the leader's high watermark, as far as this log is durable."""
    role = quorum.role
    if isinstance(role, Follower) and role.leader_high_watermark is not None:
        known = min(role.leader_high_watermark, quorum.durable)
        if known > 0:
            quorum.raise_high_watermark(Offset(known))


def end_rejoining(quorum: Quorum) -> None:
    """Take part in elections again once everything that can be committed is durable here.

    The first record of the leader's epoch follows everything that earlier leaders committed, and
    what its own epoch has committed is below its high watermark.
    """
    role = quorum.role
    if not quorum.is_rejoining or not isinstance(role, Follower):
        return
    committed, is_flushed = role.leader_high_watermark, quorum.durable == quorum.end.offset
    if committed is None or quorum.installing is not None or not is_flushed:
        return
    if quorum.end.epoch == role.epoch and quorum.durable >= committed:
        quorum.is_rejoining = False
        quorum.emit(Rejoined())


# -- snapshots ---------------------------------------------------------------


def _begin_download(quorum: Quorum, role: Follower, sent: InFlight, snapshot: LogPosition) -> None:
    """Load a snapshot, unless it would discard committed records."""
    committed = quorum.high_watermark
    is_possible = snapshot.offset >= 0 and 0 <= snapshot.epoch <= role.epoch
    if not is_possible or (committed or -1) > snapshot.offset:
        quorum.outstanding.pause(sent.to, quorum.now)
        return
    role.download = Download(snapshot)


def on_fetch_snapshot_reply(quorum: Quorum, sent: InFlight, reply: FetchSnapshotReply) -> None:
    """Take a chunk of a snapshot; a chunk that does not fit restarts the download."""
    role = quorum.role
    is_current = isinstance(role, Follower) and role.download is not None
    if reply.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
        if is_current and isinstance(role, Follower) and reply.leader.epoch == role.epoch:
            # The leader has a newer one by now; its next fetch reply will name it.
            role.download = None
            _record_contact(quorum, role)
        return
    if is_settled(quorum, sent, reply.error, reply.leader):
        return
    role = quorum.role
    if not isinstance(role, Follower) or role.download is None:
        return
    download = role.download
    chunk = reply.chunk
    fits = (
        reply.snapshot == download.snapshot
        and reply.position == download.position
        and isinstance(chunk, Chunk)
        and 0 < chunk.length <= reply.size - download.position
    )
    if not fits or not isinstance(chunk, Chunk):
        role.download = None
        quorum.outstanding.pause(sent.to, quorum.now)
        return
    _record_contact(quorum, role)
    quorum.emit(WriteSnapshotChunk(download.snapshot, download.position, chunk.payload))
    download.position += chunk.length
    if download.position == reply.size:
        role.download = None
        quorum.installing = download.snapshot
        quorum.emit(InstallSnapshot(download.snapshot))


def on_installed(quorum: Quorum, event: SnapshotInstalled) -> None:
    """Switch to an installed snapshot: its voters are in effect and all of it is committed."""
    assert quorum.installing == event.snapshot, "another snapshot was installed"
    quorum.installing = None
    before = quorum.voters
    quorum.reset_to_snapshot(event.snapshot)
    quorum.membership.reset(event.snapshot.offset, event.kraft_version, event.voters)
    if quorum.voters != before:
        quorum.voters_changed()
    quorum.raise_high_watermark(event.snapshot.offset)
    if isinstance(quorum.role, Follower):
        _record_contact(quorum, quorum.role)


def on_rejected(quorum: Quorum, event: SnapshotRejected) -> None:
    """Handle a rejected download: fetch again; the leader will name a snapshot again."""
    if quorum.installing == event.snapshot:
        quorum.installing = None


# -- time --------------------------------------------------------------------


def on_time(quorum: Quorum) -> None:
    """Give up a leader that has not answered within the fetch timeout."""
    role = quorum.role
    if isinstance(role, Follower) and role.fetch_deadline <= quorum.now and quorum.may_stand:
        quorum.become_prospective()


# -- what to send ------------------------------------------------------------


def send_as_follower(quorum: Quorum, role: Follower) -> None:
    """Fetch from the leader; an observer whose leader does not answer asks other nodes."""
    if quorum.durable < quorum.end.offset or quorum.installing is not None:
        return
    endpoint = find_endpoint(role.leader_endpoints, quorum.settings.listener)
    is_lost = role.fetch_deadline <= quorum.now or endpoint is None
    if is_lost or quorum.outstanding.is_paused(role.leader_id, quorum.now):
        send_to_bootstrap_nodes(quorum, role)
    elif _needs_update(quorum, role):
        role.update_voter_at = Millis(quorum.now + quorum.settings.update_voter_ms)
        own = quorum.settings
        request = UpdateVoterRequest(
            own.cluster_id, role.epoch, own.key, own.endpoints, own.kraft_versions
        )
        quorum.send(role.leader_id, endpoint, request)
    elif not quorum.outstanding.is_any_in_flight():
        quorum.send(role.leader_id, endpoint, _next_request(quorum, role.download))


def _needs_update(quorum: Quorum, role: Follower) -> bool:
    if quorum.now < role.update_voter_at or not quorum.is_voter:
        return False
    if not quorum.outstanding.may_send(role.leader_id, quorum.now):
        return False
    if quorum.membership.kraft_version == 0:
        # Only the leader keeps it, in memory, so the voter sends it to each new leader.
        return not role.has_updated
    return quorum.voters.get(quorum.settings.node_id) != quorum.settings.voter


def on_update_reply(quorum: Quorum, sent: InFlight, reply: VoterChangeReply) -> None:
    """Record that the leader took this voter's entry, or retry later."""
    if not is_settled(quorum, sent, reply.error, reply.leader):
        role = quorum.role
        if isinstance(role, Follower):
            role.has_updated = True


def send_to_bootstrap_nodes(quorum: Quorum, role: Follower | None = None) -> None:
    """Ask a randomly chosen bootstrap server or voter for the leader.

    The last known leader is among them: it may be reachable again.
    """
    if quorum.outstanding.is_any_in_flight() or quorum.installing is not None:
        return
    if quorum.durable < quorum.end.offset:
        return
    nodes = bootstrap_nodes(quorum)
    if role is not None and role.leader_id not in dict(nodes):
        endpoint = find_endpoint(role.leader_endpoints, quorum.settings.listener)
        nodes += [] if endpoint is None else [(role.leader_id, endpoint)]
    ready = [
        (node_id, endpoint)
        for node_id, endpoint in nodes
        if quorum.outstanding.may_send(node_id, quorum.now)
    ]
    if ready:
        node_id, endpoint = ready[quorum.below(len(ready))]
        quorum.send(node_id, endpoint, _next_request(quorum, None))


def bootstrap_nodes(quorum: Quorum) -> list[tuple[NodeId, Endpoint]]:
    """Return the nodes to ask for the leader: the configured servers, and the other known voters.

    Either list alone may be out of date: voters change, and a new node knows none. This node is
    often among the servers, since all nodes have the same list; it is left out.
    """
    servers = quorum.settings.bootstrap
    own = {(endpoint.host, endpoint.port) for endpoint in quorum.settings.endpoints}
    nodes = [
        (NodeId(BOOTSTRAP_ID_FIRST - i), server)
        for i, server in enumerate(servers)
        if (server.host, server.port) not in own
    ]
    addresses = {(server.host, server.port) for server in servers}
    for voter in quorum.voters:
        endpoint = voter.endpoint(quorum.settings.listener)
        is_other = voter.key.node_id != quorum.settings.node_id
        if is_other and endpoint and (endpoint.host, endpoint.port) not in addresses:
            nodes.append((voter.key.node_id, endpoint))
    return nodes


def _next_request(quorum: Quorum, download: Download | None) -> FetchRequest | FetchSnapshotRequest:
    settings = quorum.settings
    if download is not None:
        return FetchSnapshotRequest(
            cluster_id=settings.cluster_id,
            replica=settings.key,
            epoch=quorum.epoch,
            snapshot=download.snapshot,
            position=download.position,
            bytes_max=settings.fetch_bytes_max,
        )
    return FetchRequest(
        cluster_id=settings.cluster_id,
        replica=settings.key,
        epoch=quorum.epoch,
        log_end=quorum.end,
        high_watermark=quorum.high_watermark,
        wait_ms_max=settings.fetch_wait_ms_max,
        bytes_max=settings.fetch_bytes_max,
    )
