"""The requests that the active controller decides: each is submitted to it as a decision."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from ottla.api.cluster.controller_decisions import (
    ControllerContext,
    DecisionCall,
    DecisionFunction,
    restore_reply,
)
from ottla.api.surface.replies import Answer, Handled, Result, paced
from ottla.api.surface.routes import Caller
from ottla.api.surface.row import Lists
from ottla.api.surface.table import SURFACE
from ottla.api.surface.throttle_field import FIELD
from ottla.controller import decide_once, elect_leaders, feature_updates
from ottla.controller.active_controller import Decide, Moment
from ottla.controller.decision import Decision, Steps
from ottla.controller.unclean_recovery import Recovery
from ottla.metadata.image import Image
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.messages import update_features
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from ottla.protocol.schema import Message
from ottla.protocol.types import TopicIdPartition
from ottla.raft.core.messages import VoterChangeReply
from ottla.runtime.lazy import LazyModule

if TYPE_CHECKING:
    from ottla.api.cluster import controller_authorization as authorizing
    from ottla.api.cluster import long_changes
else:
    authorizing = LazyModule("ottla.api.cluster.controller_authorization")
    long_changes = LazyModule("ottla.api.cluster.long_changes")

# Of the changes that are not rows with a decision of their own.
_OTHER_LISTS: Final = {
    ApiKey.ELECT_LEADERS: (
        Lists(
            *("topic_partitions", "replica_election_results"), *("partitions", "partition_result")
        ),
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (Lists("resources", "responses"),),
}


def _lists_of(key: ApiKey) -> tuple[Lists, ...]:
    """Return the lists of a change whose length is limited."""
    handler = SURFACE[key].controller
    return _OTHER_LISTS.get(key, () if handler is None else handler.lists)


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
    """Finds the replica with the most complete log."""

    async def find(
        self, partitions: Iterable[TopicIdPartition]
    ) -> Mapping[TopicIdPartition, Recovery]:
        """Query the replicas of partitions without a leader; return which to elect for each."""
        ...

    def note(self, image: Image, records: Iterable[Versioned]) -> None:
        """Count the unclean elections among records."""
        ...


class KRaftVersion(Protocol):
    """kraft.version, the one feature whose level the voters keep in their own log."""

    def kraft_version(self) -> int:
        """Return the level in force."""
        ...

    async def upgrade_kraft_version(
        self, level: int, *, is_validate_only: bool = False
    ) -> VoterChangeReply:
        """Raise it; the reply contains the error."""
        ...


class ControllerHandlers(msgspec.Struct, frozen=True):
    """The handlers of the active controller, including the decision rows of the surface."""

    controller: ActiveController
    quorum: KRaftVersion
    context: ControllerContext
    recoveries: Recoveries

    def handler_of(self, key: ApiKey, decide_on: DecisionFunction) -> Callable[..., Handled]:
        """Return the handler that submits a decision and replies once it is committed."""

        lists = _lists_of(key)

        async def handle(caller: Caller, request: Message, version: int) -> Result:
            if lists and long_changes.is_long(request):
                return await self._refuse_long(key, version, request, caller)

            def decide(moment: Moment) -> Decision[Message] | Steps[Decision[Message]]:
                call = DecisionCall(self.context, caller, request, version, moment)
                return self.decide_once(key, call, decide_on)

            reply: Message = await self.controller.submit(decide)
            throttle_ms: int = getattr(reply, FIELD, 0)
            return Answer(reply, throttle_ms) if throttle_ms else reply

        return handle

    async def _refuse_long(
        self, key: ApiKey, version: int, request: Message, caller: Caller
    ) -> Message:
        """Reply to a change with more rows than one decision may have."""
        image = self.controller.committed_image
        authorize = authorizing.authorize_rows(key, self.context.access, caller, image)
        steps = long_changes.refuse_long(key, version, request, _lists_of(key), authorize)
        return await paced(steps)

    def decide_once(
        self, key: ApiKey, call: DecisionCall, decide_on: DecisionFunction
    ) -> Decision[Message] | Steps[Decision[Message]]:
        """Decide, unless an earlier attempt of the same forwarded request was decided."""
        if call.caller.request is None:
            return decide_on(call)
        return decide_once.decide_once(
            call.image,
            key,
            call.caller.request,
            lambda: decide_on(call),
            partial(restore_reply, call),
        )

    async def on_elect_leaders(
        self, caller: Caller, request: ElectLeadersRequest, version: int
    ) -> ElectLeadersResponse:
        """Elect leaders; before an unclean election, query the replicas' log end offsets."""
        key = ApiKey.ELECT_LEADERS
        if long_changes.is_long(request):
            refused = await self._refuse_long(key, version, request, caller)
            assert isinstance(refused, ElectLeadersResponse)
            return refused
        unclean = elect_leaders.unclean_partitions(self.controller.committed_image, request)
        found = await self.recoveries.find(unclean) if unclean else {}

        def decide_election(call: DecisionCall) -> Decision[Message]:
            decision = elect_leaders.decide_elect_leaders(call.image, request, call.settings, found)
            self.recoveries.note(call.image, decision.records)
            return decision

        def decide(moment: Moment) -> Decision[Message] | Steps[Decision[Message]]:
            call = DecisionCall(self.context, caller, request, version, moment)
            return self.decide_once(key, call, decide_election)

        response: ElectLeadersResponse = await self.controller.submit(decide)
        return response

    async def on_update_features(
        self, caller: Caller, request: update_features.UpdateFeaturesRequest, version: int
    ) -> update_features.UpdateFeaturesResponse:
        """Finalize feature levels; kraft.version is changed last, by the voters."""
        kraft_levels: list[int] = []

        def decide(moment: Moment) -> feature_updates.FeaturesDecision:
            context = feature_updates.FeatureContext(
                self.context.configs(), self.quorum.kraft_version()
            )
            found = feature_updates.decide_update_features(moment.image, request, version, context)
            if found.kraft_version is not None:
                kraft_levels.append(found.kraft_version)
            return found

        response: update_features.UpdateFeaturesResponse = await self.controller.submit(decide)
        for level in kraft_levels:
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
