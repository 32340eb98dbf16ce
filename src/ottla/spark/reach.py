"""Checks that brokers answer, before anything slow is started."""

from typing import Final

from msgspec import structs

from ottla.client.blocking.broker_client import BrokerClient, ClientSettings
from ottla.client.cluster import NoBroker

REACH_MS: Final = 6000
"""How long brokers may take to answer the first request."""
_EACH_MS_MIN: Final = 1000
_TIMEOUT: Final = "default.api.timeout.ms"


def check_reach(settings: ClientSettings, origin: str) -> None:
    """Ask for the cluster's metadata; ``origin`` says where the addresses come from.

    A timeout that the user has set is used instead of `REACH_MS`.

    Raises:
        NoBroker: no broker answers; the message has the addresses and their origin.
        LoginFailed, BadClientSecurity: as every request.
    """
    each_ms = max(REACH_MS // len(settings.bootstrap), _EACH_MS_MIN)
    patience = {_TIMEOUT: str(REACH_MS), "request.timeout.ms": str(each_ms)}
    properties = {**patience, "retry.backoff.ms": "50", **settings.properties}
    client = BrokerClient(structs.replace(settings, properties=properties))
    try:
        client.topics([])
    except NoBroker as error:
        reason = str(error).removeprefix("no broker answers: ")
        raise NoBroker(
            f"no broker answers at {', '.join(settings.bootstrap)} ({origin}): {reason}"
        ) from error
    finally:
        client.close()
