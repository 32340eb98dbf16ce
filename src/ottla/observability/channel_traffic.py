"""What a node sends to the other replicas of the metadata quorum and what it gets back. Pure."""

from collections.abc import Iterable

import msgspec

from ottla.observability.exposition import Family, counter

_PREFIX = "kafka_server_raftchannelmetrics_"


class ChannelTraffic(msgspec.Struct):
    """Counts over all connections, also closed ones; bytes are those of requests and replies."""

    connections: int = 0
    requests: int = 0
    bytes_out: int = 0
    responses: int = 0
    bytes_in: int = 0

    def collect(self) -> Iterable[Family]:
        """Yield the counters, under the names of Kafka's raft channel."""
        for name, help_text, value in (
            (
                "connection_creation_total",
                "Connections opened to other replicas.",
                self.connections,
            ),
            ("request_total", "Requests sent to other replicas.", self.requests),
            ("outgoing_byte_total", "Bytes sent to other replicas.", self.bytes_out),
            ("response_total", "Replies of other replicas.", self.responses),
            ("incoming_byte_total", "Bytes received from other replicas.", self.bytes_in),
        ):
            yield counter(_PREFIX + name, help_text, value)
