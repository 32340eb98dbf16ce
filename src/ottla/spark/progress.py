"""Commits a query's offsets to a consumer group, so that monitoring shows its lag.

    spark.streams.addListener(GroupOffsets(options))      # the options of the source, with groupId

Spark notifies a source of a finished batch only while it plans the next one, and never of the last
batch of an AvailableNow query: commits of the source itself are always one batch behind. A listener
is notified after every batch. It commits for each source, of any query, whose offsets contain its
``groupId``; the position itself stays in the checkpoint.
"""

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from ottla.client.blocking.broker_client import client_for
from ottla.client.cluster import Refused
from ottla.spark.option_values import OptionError
from ottla.spark.options import SourceOptions
from ottla.spark.stream_offsets import BadStreamOffset, Positions, from_json

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log: Final = logging.getLogger(__name__)


class GroupOffsets(StreamingQueryListener):
    """Listens to all queries of a session, and commits for those with one group id.

    A failed commit is logged as a warning: the next batch commits again, and no query depends on
    it.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        """Create a listener with the options of the source.

        Raises:
            OptionError: an option is invalid, or ``groupId`` is missing.
        """
        parsed = SourceOptions.parse(options, is_stream=True)
        if parsed.group is None:
            raise OptionError("option 'groupId' is missing: it names the group to commit to")
        self._client = parsed.client
        self._group = parsed.group

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:
        """Commit the end offsets of the batch."""
        for source in event.progress.sources:
            ends = ends_of(source.endOffset, self._group)
            if not ends:
                continue
            try:
                client_for(self._client).commit_offsets(self._group, ends)
            except (Refused, OSError) as error:
                log.warning("group %s: cannot commit offsets: %s", self._group, error)

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:
        """Do nothing: no batch has finished."""

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:
        """Do nothing: no batch has finished."""

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:
        """Do nothing: every finished batch is already committed."""


def ends_of(end_offset: object, group: str) -> Positions:
    """Return the end offsets in a source's progress; empty if it has another group id."""
    try:
        kept = json.loads(end_offset) if isinstance(end_offset, str) else end_offset
        if not isinstance(kept, dict) or kept.get("group") != group:
            return {}
        return from_json(kept).ends
    except (ValueError, BadStreamOffset):  # offsets of another kind of source
        return {}
