"""Asks a cluster what there is to read, and says what is lost; the rules are in `plan`.

A cluster that was just disturbed may say something that passes: a topic not known yet to a broker
that restarts, an end that the new leader has not heard of. What looks like a loss is therefore
asked for again, ``fetchOffset.numRetries`` times, before it is believed.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from ottla.client.cluster import Refused
from ottla.pipeline import plan
from ottla.pipeline.broker import BrokerClient, client_for
from ottla.pipeline.offsets import EARLIEST, LATEST, Boundary, Edge, Positions
from ottla.pipeline.option_values import OptionError
from ottla.pipeline.options import Assign, Pattern, SourceOptions, Subscribe
from ottla.pipeline.plan import Cause, Loss, Topic, View
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import TopicPartition
from ottla.protocol.uuids import uuid_text
from ottla.runtime.blocking import pause
from ottla.runtime.clock import SystemClock

log: Final = logging.getLogger(__name__)

_T = TypeVar("_T")
_Judged = tuple[_T, list[Loss]]


class DataLoss(RuntimeError):
    """Records that were to be read are not there; the message names partitions, ranges, causes."""


class Survey:
    """What one reader asks for. Holds no connection: it is pickled along with its reader."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._clock = SystemClock()

    @property
    def client(self) -> BrokerClient:
        """This process's client."""
        return client_for(self._options.client)

    # -- what is there ---------------------------------------------------------

    def view(self) -> View:
        """Return what there is of the topics asked for.

        Raises:
            OptionError: a topic or partition that was asked for by name is not there.
        """
        choice = self._options.choice
        found = self._topics(self._names())
        for _ in range(self._options.patience.retries):
            if not plan.missing(choice, found):
                break
            pause(self._options.patience.wait_ms)
            found = self._topics(self._names())
        if lacking := plan.missing(choice, found):
            name = "assign" if isinstance(choice, Assign) else "subscribe"
            raise OptionError(f"option {name!r}: no such topic or partition: {', '.join(lacking)}")
        return self._ends(plan.choose(choice, found), found)

    def view_now(self) -> View:
        """Return what there is of the topics asked for; those that are not there are left out."""
        found = self._topics(self._names())
        return self._ends(plan.choose(self._options.choice, found), found)

    def view_of(self, partitions: Sequence[TopicPartition]) -> View:
        """Return what there is of some partitions, whatever is asked for."""
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
            name: Topic(uuid_text(each.topic_id), each.partitions, each.internal)
            for name, each in self.client.topics(names).items()
        }

    def _ends(self, partitions: Sequence[TopicPartition], found: Mapping[str, Topic]) -> View:
        ids = {name: found[name].id for name in sorted({each.topic for each in partitions})}
        # The beginning first: it moves up too, and must not pass the end that was seen.
        earliest = self.list_offsets(dict.fromkeys(partitions, EARLIEST))
        latest = self.list_offsets(dict.fromkeys(partitions, LATEST))
        return View(ids, earliest, latest)

    def list_offsets(self, asked: Positions) -> Positions:
        """Return the offsets of times; in read_committed the end is the last stable offset."""
        return self.client.list_offsets(asked, committed=self._options.committed) if asked else {}

    def density(self, view: View) -> dict[TopicPartition, float]:
        """Return bytes per offset of each partition, measured on disk."""
        return plan.density_of(view, self.client.sizes(sorted(view.ids)))

    # -- where to begin, where to end ----------------------------------------------

    def settle(self, boundary: Boundary, option: str, view: View) -> Positions:
        """Return an offset for each partition of a view.

        Raises:
            OptionError: the option names other partitions, or a time that no record reaches.
        """
        if isinstance(boundary, Edge):
            return dict(view.latest if boundary is Edge.LATEST else view.earliest)
        partitions = sorted(view.latest)
        asked = plan.questions(boundary, option, partitions, self._clock.now())
        # Records may have come since the view was taken: they are not in it.
        answers = {
            each: min(offset, view.latest[each])
            for each, offset in self.list_offsets(asked).items()
        }
        return plan.settle(boundary, option, asked, answers, view.latest)

    # -- what is lost ----------------------------------------------------------------

    def judge(
        self, look: Callable[[], View], rule: Callable[[View], _Judged[_T]]
    ) -> tuple[View, _T]:
        """Look, apply a rule, and look again while it finds losses that may yet pass.

        Raises:
            DataLoss: something is lost, and ``failOnDataLoss`` is true.
        """
        retries = self._options.patience.retries
        while True:
            try:
                view = look()
                result, losses = rule(view)
            except Refused as error:  # a topic was deleted between two questions
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not retries:
                    raise
            else:
                if not retries or all(each.cause is Cause.EXPIRED for each in losses):
                    report(losses, self._options)
                    return view, result
            retries -= 1
            pause(self._options.patience.wait_ms)


def report(losses: Sequence[Loss], options: SourceOptions) -> None:
    """Say what is lost, as an error or, where ``failOnDataLoss`` is false, as a warning.

    Raises:
        DataLoss: something is lost, and ``failOnDataLoss`` is true.
    """
    if not losses:
        return
    text = plan.explain(losses)
    if options.fail_on_data_loss:
        raise DataLoss(
            f"records that were to be read are gone. {text}. "
            "Set failOnDataLoss=false to go on without them."
        )
    log.warning("records are skipped: %s", text)
