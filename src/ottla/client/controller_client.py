"""The protocol by which parts of a node send requests to the active controller."""

from typing import Protocol

from ottla.protocol.schema import Message


class ControllerClient(Protocol):
    """Sends requests to the active controller, wherever it is."""

    async def ask(self, request: Message, timeout_ms: int) -> Message:
        """Return the response of the active controller, following it where leadership moves.

        Raises:
            RequestTimedOut: none was found, or none answered, in time.
        """
        ...


class ResendingControllerClient(Protocol):
    """A `ControllerClient` that can send another form of a request that it sends again."""

    async def ask(
        self, request: Message, timeout_ms: int, resend: Message | None = None
    ) -> Message:
        """As `ControllerClient.ask`.

        ``resend`` is sent instead once an earlier attempt may have reached a controller.
        """
        ...
