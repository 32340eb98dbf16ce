"""Service: registers this controller, with its listeners and features (KIP-919).

A controller registers with the active one, which may be itself, as soon as the cluster's
metadata.version has a record for it, and again whenever the image shows another incarnation.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from ottla.client.controller_client import ControllerClient
from ottla.metadata.image import Image
from ottla.metadata.image_watch import Condition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

log = logging.getLogger(__name__)

RETRY_MS: Final = 500
REQUEST_TIMEOUT_MS: Final = 5_000


class Images(Protocol):
    """Waits for an image."""

    async def wait_image(self, condition: Condition) -> Image:
        """Return the first image that fulfils the condition."""
        ...


class ControllerRegistrar:
    """Registers whenever the image lacks this incarnation of the controller."""

    name = "controller-registration"

    def __init__(
        self,
        controller: ControllerClient,
        images: Images,
        registration: ControllerRegistrationRequest,
    ) -> None:
        self._controller = controller
        self._images = images
        self._registration = registration

    async def run(self, ready: Callable[[], None]) -> None:
        """Watch the image until cancelled. Ready at once: no service needs it."""
        ready()
        while True:
            await self._images.wait_image(self._is_missing)
            await self._register()
            await asyncio.sleep(RETRY_MS / 1000)

    def _is_missing(self, image: Image) -> bool:
        version = image.features.metadata_version()
        if version is None or not version.is_controller_registration_supported():
            return False
        known = image.cluster.controllers.get(self._registration.controller_id)
        return known is None or known.incarnation_id != self._registration.incarnation_id

    async def _register(self) -> None:
        try:
            response = await self._controller.ask(self._registration, REQUEST_TIMEOUT_MS)
        except (Fault, OSError) as error:
            log.info("controller registration not sent reason=%s", error)
            return
        assert isinstance(response, ControllerRegistrationResponse)
        if response.error_code:
            name = ErrorCode(response.error_code).name
            log.warning("controller registration rejected error=%s; trying again", name)
