"""DescribeTransactions and ListTransactions of the coordinator on this broker (KIP-664)."""

from collections.abc import Callable
from typing import Any

import msgspec
import re2  # type: ignore[import-untyped]

from ottla.api.surface.replies import Steps
from ottla.api.surface.routes import Caller
from ottla.api.transactions.transaction_access import ALLOW_ALL, TransactionAccess
from ottla.coordinators.groups.consumer.regex import WORK_MAX, compiled, work_of
from ottla.coordinators.transactions.service import TransactionCoordinator
from ottla.coordinators.transactions.transaction import BY_TITLE, Transaction
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from ottla.protocol.messages.describe_transactions import TransactionState as DescribedState
from ottla.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ottla.protocol.messages.list_transactions import TransactionState as ListedState
from ottla.runtime.ports import Clock


class DescribeTransactionsHandlers(msgspec.Struct, frozen=True):
    """The handlers of one broker."""

    coordinator: TransactionCoordinator
    clock: Clock
    access: TransactionAccess = ALLOW_ALL

    def on_describe(
        self, caller: Caller, request: DescribeTransactionsRequest, version: int
    ) -> DescribeTransactionsResponse:
        """Describe each id; topics that the caller may not see are left out."""
        return DescribeTransactionsResponse(
            transaction_states=[self._describe(caller, each) for each in request.transactional_ids]
        )

    def _describe(self, caller: Caller, transactional_id: str) -> DescribedState:
        if not self.access.describe_transactional_id(caller, transactional_id):
            return _refused(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not transactional_id:
            return _refused(transactional_id, ErrorCode.INVALID_REQUEST)
        try:
            found = self.coordinator.describe(transactional_id)
        except Fault as fault:
            return _refused(transactional_id, fault.code)
        if found is None:
            return _refused(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return _described(found, lambda topic: self.access.describe_topic(caller, topic))

    def on_list(
        self, caller: Caller, request: ListTransactionsRequest, version: int
    ) -> Steps[ListTransactionsResponse]:
        """List the ids coordinated here that match every filter that is given."""
        yield
        if self.coordinator.runtime.is_loading():
            return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        unknown = [each for each in request.state_filters if each not in BY_TITLE]
        try:
            pattern = _pattern(request)
        except re2.error:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        passes = _filter(request, self.clock.now())
        listed: list[ListedState] = []
        work = 0
        for found in list(self.coordinator.all()):
            name = found.transactional_id
            if passes(found) and self.access.describe_transactional_id(caller, name):
                work += 1000 if pattern is None else work_of(pattern, name)
                if pattern is None or _matches(pattern, name):
                    listed.append(ListedState(name, found.producer_id, found.status.title))
            if work >= WORK_MAX // 4:
                work = 0
                yield
        return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)


def _filter(request: ListTransactionsRequest, now: int) -> Callable[[Transaction], bool]:
    """Return a predicate from the filters of a request, except the pattern."""
    states = frozenset(request.state_filters)
    producers = frozenset(request.producer_id_filters)
    open_ms = request.duration_filter

    def passes(each: Transaction) -> bool:
        return (
            (not states or each.status.title in states)
            and (not producers or each.producer_id in producers)
            and (open_ms < 0 or now - each.started_at > open_ms)
        )

    return passes


def _pattern(request: ListTransactionsRequest) -> Any:  # noqa: ANN401 - the library has no types
    """Return the compiled pattern of a request; None if it has none. Raises `re2.error`."""
    return compiled(request.transactional_id_pattern) if request.transactional_id_pattern else None


def _matches(pattern: Any, name: str) -> bool:  # noqa: ANN401 - as above
    """Say whether a pattern matches an id; an id of kilobytes is no work for a large pattern."""
    return work_of(pattern, name) <= 2 * WORK_MAX and pattern.fullmatch(name) is not None


def _described(found: Transaction, may_see: Callable[[str], bool]) -> DescribedState:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(found.partitions):
        if may_see(topic):
            topics.setdefault(topic, []).append(index)
    return DescribedState(
        transactional_id=found.transactional_id,
        transaction_state=found.status.title,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_at,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[TopicData(topic, indexes) for topic, indexes in topics.items()],
    )


def _refused(transactional_id: str, code: ErrorCode) -> DescribedState:
    return DescribedState(error_code=code, transactional_id=transactional_id)
