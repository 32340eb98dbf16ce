"""Commits how far a query is to a consumer group, so that its lag shows wherever lag is watched.

    spark.streams.addListener(GroupOffsets(options))      # the options of the source, with groupId

Spark tells a source that a batch is finished only while it plans the next one, and never of the
last batch of an AvailableNow query: the source commits what it is told, always a batch behind. A
listener hears of every batch when it is done. It commits for each source that has its ``groupId``
in the offsets of its progress, in whichever query; the position itself stays in the checkpoint.
"""

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from ottla.client.cluster import Refused
from ottla.pipeline.broker import client_for
from ottla.pipeline.offsets import BadStreamOffset, Positions, from_json
from ottla.pipeline.option_values import OptionError
from ottla.pipeline.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log: Final = logging.getLogger(__name__)


class GroupOffsets(StreamingQueryListener):
    """Listens to all queries of a session, and commits for those that read under one group.

    A commit that fails is a warning: the next batch commits again, and no query depends on it.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        """Take the options that the source has.

        Raises:
            OptionError: one is wrong, or ``groupId`` is not among them.
        """
        parsed = SourceOptions.parse(options, is_stream=True)
        if parsed.group is None:
            raise OptionError("option 'groupId' is missing: it names the group to commit to")
        self._client = parsed.client
        self._group = parsed.group

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:
        """Commit where the batch has ended."""
        for source in event.progress.sources:
            ends = ends_of(source.endOffset, self._group)
            if not ends:
                continue
            try:
                client_for(self._client).commit_offsets(self._group, ends)
            except (Refused, OSError) as error:
                log.warning("group %s: offsets are not committed: %s", self._group, error)

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:
        """Nothing is read yet."""

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:
        """Nothing new was read."""

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:
        """Every finished batch was heard of before."""


def ends_of(end_offset: object, group: str) -> Positions:
    """Return where a source of a query's progress is; nothing if it is not of ``group``."""
    try:
        kept = json.loads(end_offset) if isinstance(end_offset, str) else end_offset
        if not isinstance(kept, dict) or kept.get("group") != group:
            return {}
        return from_json(kept).ends
    except (ValueError, BadStreamOffset):  # another kind of source has offsets of its own
        return {}
