"""Watches the files of TLS contexts and reloads those that changed.

Handshakes that begin after a reload use the new certificate; open connections keep theirs. Files
that cannot be used are logged, and the old certificate stays.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from ottla.security.tls import TlsContexts
from ottla.security.tls_settings import BadTls

log = logging.getLogger(__name__)


class TlsReload:
    """Service: looks every ``interval_ms``."""

    name = "tls-reload"

    def __init__(self, contexts: Sequence[TlsContexts], interval_ms: int) -> None:
        self._contexts = contexts
        self._interval_ms = interval_ms

    def reload_all(self) -> None:
        """Reload every context now.

        Raises:
            BadTls: the first that could not be; it stays as it was, and the others are reloaded.
        """
        failed: BadTls | None = None
        for contexts in self._contexts:
            try:
                contexts.reload()
            except BadTls as error:
                failed = failed or error
        if failed is not None:
            raise failed

    async def run(self, ready: Callable[[], None]) -> None:
        """Look until cancelled."""
        ready()
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            for contexts in self._contexts:
                if contexts.has_changed_files():
                    self._reload(contexts)

    def _reload(self, contexts: TlsContexts) -> None:
        files = ", ".join(contexts.settings.files)
        try:
            contexts.reload()
        except BadTls as error:
            log.error("old certificate kept files=%s reason=%s", files, error)  # noqa: TRY400
        else:
            log.info("certificate reloaded files=%s", files)
