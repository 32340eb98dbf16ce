"""The controller listener's own requests: each is submitted as a decision of the one table."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ottla.api.controller_table import DECISIONS, Ask, ControllerContext, Decider, restore_reply
from ottla.api.routes import Caller, Route
from ottla.controller import leader_elections
from ottla.controller.active_controller import Decide, Moment
from ottla.controller.decision import Decision
from ottla.controller.unclean_recovery import Recovery
from ottla.metadata.image import Image
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from ottla.protocol.schema import Message
from ottla.protocol.types import TopicIdPartition
from ottla.raft.core.messages import VoterChangeReply
from ottla.runtime.lazy import LazyModule

if TYPE_CHECKING:
    from ottla.controller import decide_once, feature_updates
    from ottla.protocol.messages import update_features
else:
    feature_updates = LazyModule("ottla.controller.feature_updates")
    decide_once = LazyModule("ottla.controller.decide_once")
    update_features = LazyModule("ottla.protocol.messages.update_features")


class ActiveController(Protocol):
    """What the handlers need of the controller."""

    @property
    def committed_image(self) -> Image:
        """The image that reads are answered from."""
        ...

    async def submit(self, decide: Decide[Any]) -> Any:  # noqa: ANN401 - the decision's own reply
        """Decide, write, and return the reply once it is committed and applied."""
        ...


class Recoveries(Protocol):
    """Who finds out which replica has the most complete log."""

    async def find(
        self, partitions: Iterable[TopicIdPartition]
    ) -> Mapping[TopicIdPartition, Recovery]:
        """Ask the replicas of partitions without a leader; return whom to elect for each."""
        ...

    def note(self, image: Image, records: Iterable[Versioned]) -> None:
        """Count the leaders that records make although they lack some."""
        ...


class KRaftVersion(Protocol):
    """The one feature that the voters keep themselves."""

    def kraft_version(self) -> int:
        """Return the level in force."""
        ...

    async def upgrade_kraft_version(
        self, level: int, *, is_validate_only: bool = False
    ) -> VoterChangeReply:
        """Raise it, or say why not."""
        ...


class ControllerHandlers(msgspec.Struct, frozen=True):
    """The handlers; ``table`` is which decision answers what."""

    controller: ActiveController
    quorum: KRaftVersion
    context: ControllerContext
    recoveries: Recoveries
    table: Mapping[ApiKey, Any]

    def routes(self) -> tuple[Route, ...]:
        """Return the controller's part of the controller listener's routes."""
        return (
            *(Route(key, self._handler(key)) for key in self.table),
            Route(ApiKey.ELECT_LEADERS, self.on_elect_leaders),
            Route(ApiKey.UPDATE_FEATURES, self.on_update_features),
        )

    def _handler(self, key: ApiKey) -> Any:  # noqa: ANN401 - a handler of that key's classes
        decider = self.table[key]

        async def handle(caller: Caller, request: Message, version: int) -> Message:
            def decide(moment: Moment) -> Decision[Message]:
                return self._once(key, Ask(self.context, caller, request, version, moment), decider)

            reply: Message = await self.controller.submit(decide)
            return reply

        return handle

    def _once(self, key: ApiKey, ask: Ask, decider: Decider) -> Decision[Message]:
        """Decide, unless an earlier attempt of the same forwarded request was decided."""
        if ask.caller.request is None:
            return decider(ask)
        return decide_once.decide_once(
            ask.image, key, ask.caller.request, lambda: decider(ask), partial(restore_reply, ask)
        )

    async def on_elect_leaders(
        self, caller: Caller, request: ElectLeadersRequest, version: int
    ) -> ElectLeadersResponse:
        """Elect; before an unclean election replicas are asked how far their logs go."""
        unclean = leader_elections.unclean_partitions(self.controller.committed_image, request)
        found = await self.recoveries.find(unclean) if unclean else {}

        def decide_election(ask: Ask) -> Decision[Message]:
            decision = leader_elections.decide_elect_leaders(
                ask.image, request, ask.settings, found
            )
            self.recoveries.note(ask.image, decision.records)
            return decision

        def decide(moment: Moment) -> Decision[Message]:
            ask = Ask(self.context, caller, request, version, moment)
            return self._once(ApiKey.ELECT_LEADERS, ask, decide_election)

        response: ElectLeadersResponse = await self.controller.submit(decide)
        return response

    async def on_update_features(
        self, caller: Caller, request: "update_features.UpdateFeaturesRequest", version: int
    ) -> "update_features.UpdateFeaturesResponse":
        """Finalize levels; kraft.version is asked of the voters, behind all others."""
        asked: list[int] = []

        def decide(moment: Moment) -> "feature_updates.FeaturesDecision":
            context = feature_updates.FeatureContext(
                self.context.configs(), self.quorum.kraft_version()
            )
            found = feature_updates.decide_update_features(moment.image, request, version, context)
            if found.kraft_version is not None:
                asked.append(found.kraft_version)
            return found

        response: update_features.UpdateFeaturesResponse = await self.controller.submit(decide)
        for level in asked:
            if level == self.quorum.kraft_version():
                continue
            reply = await self.quorum.upgrade_kraft_version(
                level, is_validate_only=request.validate_only
            )
            if reply.error is not ErrorCode.NONE:
                return update_features.UpdateFeaturesResponse(
                    error_code=reply.error, error_message=reply.message or reply.error.name
                )
        return response


def controller_handlers(
    controller: ActiveController,
    quorum: KRaftVersion,
    context: ControllerContext,
    recoveries: Recoveries,
) -> ControllerHandlers:
    """Return the handlers of the whole table."""
    return ControllerHandlers(controller, quorum, context, recoveries, DECISIONS)
