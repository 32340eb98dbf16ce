"""How schemas are named in a registry, and the formats that can be written. Pure.

The subject of a schema is chosen by Confluent's strategies:

    topic          <topic>-value or <topic>-key
    record         the full name of the record
    topic-record   <topic>-<full name of the record>
"""

import enum
from typing import Final


class Encoding(enum.Enum):
    """A format that can be written."""

    AVRO = "avro"
    JSON = "json"
    PROTOBUF = "protobuf"


class SubjectStrategy(enum.Enum):
    """How the subject of a schema is named."""

    TOPIC = "topic"
    RECORD = "record"
    TOPIC_RECORD = "topic-record"

    def subject(self, topic: str, part: str, record: str) -> str:
        """Return the subject of the key or value of a topic."""
        match self:
            case SubjectStrategy.TOPIC:
                return f"{topic}-{part}"
            case SubjectStrategy.RECORD:
                return record
            case SubjectStrategy.TOPIC_RECORD:
                return f"{topic}-{record}"


# Confluent's classes, for jobs that have them in their settings.
_CLASSES: Final = {
    "topicnamestrategy": SubjectStrategy.TOPIC,
    "recordnamestrategy": SubjectStrategy.RECORD,
    "topicrecordnamestrategy": SubjectStrategy.TOPIC_RECORD,
}


def parse_strategy(text: str) -> SubjectStrategy:
    """Parse a strategy's name, or the name of Confluent's class. Raises ValueError."""
    found = _CLASSES.get(text.rpartition(".")[2].lower())
    if found is not None:
        return found
    try:
        return SubjectStrategy(text)
    except ValueError:
        known = ", ".join(each.value for each in SubjectStrategy)
        raise ValueError(f"{text!r} must be one of {known}") from None
