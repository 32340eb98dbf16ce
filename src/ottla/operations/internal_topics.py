"""Which topics are not the users' own. Pure."""

from typing import Final

from ottla.protocol.messages.metadata import MetadataResponseTopic
from ottla.protocol.own_topics import is_own_topic

# Kafka keeps the metadata of remote segments there, and does not call it internal.
_REMOTE_LOG_METADATA: Final = "__remote_log_metadata"


def is_internal(topic: MetadataResponseTopic) -> bool:
    """Say whether a topic is internal to brokers, or a tool of Ottla keeps its state there.

    Brokers of Apache Kafka do not know the latter.
    """
    name = topic.name or ""
    return topic.is_internal or is_own_topic(name) or name == _REMOTE_LOG_METADATA
