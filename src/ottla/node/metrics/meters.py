"""The counters of a node, constructed before everything that counts."""

import msgspec

from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.observability.channel_traffic import ChannelTraffic
from ottla.observability.loop_watch import LoopWatch
from ottla.observability.quorum_meter import QuorumMeter
from ottla.observability.request_meter import RequestMeter
from ottla.observability.topic_events import TopicMeter
from ottla.protocol.types import NodeId
from ottla.raft.core.effects import Role, RoleChanged


class Meters(msgspec.Struct):
    """The counters of requests, topics, the event loop and the quorum."""

    requests: RequestMeter
    topics: TopicMeter
    loop: LoopWatch
    quorum: QuorumMeter
    channel: ChannelTraffic = msgspec.field(default_factory=ChannelTraffic)
    name: str = "metrics"
    leader_changes: int = 0
    _leader: NodeId | None = None

    def on_image(self, delta: Delta, image: Image) -> None:
        """Drop the counters of deleted topics."""
        if delta.old.topics.ids is not image.topics.ids:
            self.topics.keep_only(image.topics.ids)

    def on_role(self, changed: RoleChanged) -> None:
        """Count a change from one known leader of the quorum to another."""
        if changed.role is not Role.LEADER:
            self.quorum.lost_leadership()
        if changed.leader_id is not None and changed.leader_id != self._leader:
            self.leader_changes += self._leader is not None
            self._leader = changed.leader_id


def new_meters() -> Meters:
    """Return the counters of a node, all at zero."""
    requests, quorum = RequestMeter(), QuorumMeter()

    def on_window() -> None:
        requests.slide()
        quorum.slide()

    return Meters(requests, TopicMeter(), LoopWatch(on_window), quorum)
