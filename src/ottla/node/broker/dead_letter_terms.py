"""Which dead-letter topic a share group has (KIP-1191)."""

import logging
from typing import Final

from ottla.coordinators.groups.group_configs import of_group
from ottla.metadata.features import SHARE_VERSION
from ottla.metadata.image import Image
from ottla.sharing.ports import DeadLetterConfig

log = logging.getLogger(__name__)

_NOTED_MAX: Final = 1000
_TOPIC_NAME: Final = "errors.deadletterqueue.topic.name"
_COPY_RECORD: Final = "errors.deadletterqueue.copy.record.enable"
_EARLIER_TOPIC_NAME: Final = "ottla.errors.deadletterqueue.topic.name"
_EARLIER_COPY_RECORD: Final = "ottla.errors.deadletterqueue.copy.record.enable"
_SHARE_VERSION_NEEDED: Final = 2


class DeadLetterTerms:
    """The dead-letter settings of groups; a setting that has no effect is logged once."""

    def __init__(self) -> None:
        self._noted: set[str] = set()

    def of(self, image: Image, group_id: str) -> DeadLetterConfig | None:
        """Return the settings of a group, None without a dead-letter topic.

        Kafka's keys need share.version 2: older brokers that lead partitions do not write dead
        letters. The keys that Ottla had before work without it.
        """
        topic = of_group(image, group_id, _TOPIC_NAME, "")
        level = image.features.levels.get(SHARE_VERSION, 0)
        if topic and level >= _SHARE_VERSION_NEEDED:
            return DeadLetterConfig(topic, of_group(image, group_id, _COPY_RECORD, "") == "true")
        earlier = of_group(image, group_id, _EARLIER_TOPIC_NAME, "")
        if earlier:
            self._note(f"{_EARLIER_TOPIC_NAME} is deprecated: set {_TOPIC_NAME}", group_id)
            copies = of_group(image, group_id, _EARLIER_COPY_RECORD, "")
            return DeadLetterConfig(earlier, copies == "true")
        if topic:
            self._note(
                f"dead letters are off: {_TOPIC_NAME} needs share.version {_SHARE_VERSION_NEEDED}, "
                f"the cluster is at {level}",
                group_id,
            )
        return None

    def _note(self, reason: str, group_id: str) -> None:
        key = f"{group_id} {reason}"
        if key not in self._noted:
            if len(self._noted) >= _NOTED_MAX:
                self._noted.clear()
            self._noted.add(key)
            log.warning("group=%s %s", group_id, reason)
