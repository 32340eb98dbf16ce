"""Queries the readable offsets of a cluster and detects losses; the rules are in `plan`.

A cluster with a recent failure may give transient answers: a restarting broker does not know a
topic yet, or a new leader reports an old end. An apparent loss is therefore queried again,
``fetchOffset.numRetries`` times, before it is reported.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from ottla.client.blocking.broker_client import BrokerClient, client_for
from ottla.client.cluster import Refused
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import TopicPartition
from ottla.protocol.uuids import uuid_text
from ottla.runtime.blocking import pause
from ottla.runtime.clock import SystemClock
from ottla.spark import plan
from ottla.spark.option_values import OptionError
from ottla.spark.options import Assign, Pattern, SourceOptions, Subscribe
from ottla.spark.plan import Cause, Loss, Topic, View
from ottla.spark.stream_offsets import EARLIEST, EARLIEST_LOCAL, LATEST, Boundary, Edge, Positions

log: Final = logging.getLogger(__name__)

_T = TypeVar("_T")
_WithLosses = tuple[_T, list[Loss]]


class DataLoss(RuntimeError):
    """Records to be read are lost; the message names partitions, offsets and causes."""


class Survey:
    """The queries of one reader. Holds no connection, because it is pickled with its reader."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._clock = SystemClock()

    @property
    def client(self) -> BrokerClient:
        """This process's client."""
        return client_for(self._options.client)

    # -- views -----------------------------------------------------------------

    def view(self) -> View:
        """Return the view of the selected topics.

        Raises:
            OptionError: a topic or partition selected by name does not exist.
        """
        choice = self._options.choice
        found = self._topics(self._names())
        for _ in range(self._options.retry_policy.retries):
            if not plan.missing(choice, found):
                break
            pause(self._options.retry_policy.wait_ms)
            found = self._topics(self._names())
        if lacking := plan.missing(choice, found):
            name = "assign" if isinstance(choice, Assign) else "subscribe"
            raise OptionError(f"option {name!r}: no such topic or partition: {', '.join(lacking)}")
        return self._ends(plan.choose(choice, found), found)

    def view_now(self) -> View:
        """Return the view of the selected topics that exist."""
        found = self._topics(self._names())
        return self._ends(plan.choose(self._options.choice, found), found)

    def view_of(self, partitions: Sequence[TopicPartition]) -> View:
        """Return the view of some partitions, selected or not."""
        found = self._topics(sorted({each.topic for each in partitions}))
        return self._ends(plan.choose(Assign(tuple(partitions)), found), found)

    def _names(self) -> list[str] | None:
        match self._options.choice:
            case Subscribe(topics):
                return list(topics)
            case Assign(partitions):
                return sorted({each.topic for each in partitions})
            case Pattern():
                return None

    def _topics(self, names: list[str] | None) -> dict[str, Topic]:
        return {
            name: Topic(uuid_text(each.topic_id), len(each.partitions), each.is_internal)
            for name, each in self.client.topics(names).items()
        }

    def _ends(self, partitions: Sequence[TopicPartition], found: Mapping[str, Topic]) -> View:
        ids = {name: found[name].id for name in sorted({each.topic for each in partitions})}
        # Start offsets first: they increase too, and must not exceed the end offsets of the view.
        earliest = self.list_offsets(dict.fromkeys(partitions, EARLIEST))
        latest = self.list_offsets(dict.fromkeys(partitions, LATEST))
        # An end below the start has nothing to read: a broker whose last stable offset stays at a
        # transaction that began in deleted records, or a new leader that lags behind.
        return View(ids, earliest, {each: max(end, earliest[each]) for each, end in latest.items()})

    def list_offsets(self, timestamps: Positions) -> Positions:
        """Return the offsets of timestamps; in read_committed the end is the last stable offset."""
        return (
            self.client.list_offsets(timestamps, committed=self._options.committed)
            if timestamps
            else {}
        )

    def density(self, view: View) -> dict[TopicPartition, float]:
        """Return bytes per offset of each partition, measured on disk."""
        sizes = self.client.sizes(sorted(view.ids))
        return plan.density_of(view, sizes, self._local_starts(view))

    def _local_starts(self, view: View) -> Positions:
        """Return the first offsets on the disks of the leaders; nothing from an old broker."""
        try:
            return self.list_offsets(dict.fromkeys(view.latest, EARLIEST_LOCAL))
        except Refused as refused:
            if refused.code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            return {}

    # -- where to begin, where to end ----------------------------------------------

    def resolve(self, boundary: Boundary, option: str, view: View) -> Positions:
        """Return an offset for each partition of a view.

        Raises:
            OptionError: the option names other partitions, or no record is at or after a timestamp.
        """
        if isinstance(boundary, Edge):
            return dict(view.latest if boundary is Edge.LATEST else view.earliest)
        partitions = sorted(view.latest)
        timestamps = plan.offset_queries(boundary, option, partitions, self._clock.now())
        # Records written after the view was taken do not belong to it.
        answers = {
            each: min(offset, view.latest[each])
            for each, offset in self.list_offsets(timestamps).items()
        }
        return plan.resolve(boundary, option, timestamps, answers, view.latest)

    # -- losses ----------------------------------------------------------------------

    def detect_losses(
        self, look: Callable[[], View], rule: Callable[[View], _WithLosses[_T]]
    ) -> tuple[View, _T]:
        """Take a view and apply a rule; repeat while it finds losses that may be transient.

        Raises:
            DataLoss: records are lost, and ``failOnDataLoss`` is true.
        """
        retries = self._options.retry_policy.retries
        while True:
            try:
                view = look()
                result, losses = rule(view)
            except Refused as error:  # a topic was deleted between two requests
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not retries:
                    raise
            else:
                if not retries or all(each.cause is Cause.EXPIRED for each in losses):
                    report(losses, self._options)
                    return view, result
            retries -= 1
            pause(self._options.retry_policy.wait_ms)


def report(losses: Sequence[Loss], options: SourceOptions) -> None:
    """Report losses as an error or, if ``failOnDataLoss`` is false, as a warning.

    Raises:
        DataLoss: records are lost, and ``failOnDataLoss`` is true.
    """
    if not losses:
        return
    text = plan.explain(losses)
    if options.fail_on_data_loss:
        raise DataLoss(
            f"records to be read are lost. {text}. "
            "Set failOnDataLoss=false to continue without them."
        )
    log.warning("skipped lost records: %s", text)
