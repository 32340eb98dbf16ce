"""Run a command against a cluster: connect, do the work, report a failure in one line."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final, TypeVar

import typer

from ottla.cli.connecting.connection_settings import (
    client_properties,
    given_now,
    options_of,
    resolve_bootstrap,
)
from ottla.cli.connecting.listener_probe import explain_mismatch
from ottla.cli.terminal.failures import fail, reason_of
from ottla.cli.terminal.suggestions import suggestion
from ottla.client.cluster import ClientOptions, ClientPorts, Cluster, NoBroker, Refused
from ottla.client.connection import Options
from ottla.config.addresses import BadAddress, HostPort, parse_host_port
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode, name_of_code
from ottla.protocol.faults import Fault, RequestTimedOut
from ottla.runtime.clock import SystemClock
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom
from ottla.security.sasl.credentials import LoginFailed

PORT_DEFAULT: Final = 9092
_ASK_HEALTH: Final = "`ottla cluster health` says whether brokers and the metadata quorum work"
_ADVICE: Final = {
    int(ErrorCode.REQUEST_TIMED_OUT): f"; {_ASK_HEALTH}",
    int(ErrorCode.SECURITY_DISABLED): (
        "; the cluster has no authorizer: set authorizer.class.name on brokers and controllers"
    ),
    int(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED): (
        "; set delegation.token.secret.key on brokers and controllers to use tokens"
    ),
    int(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED): (
        "; tokens are managed over connections with SASL or client certificates"
    ),
}
T = TypeVar("T")


class _Explained(Exception):
    """An error of a broker, with what the user may do about it."""

    def __init__(self, refused: Refused, hint: str) -> None:
        super().__init__(f"{refused}{hint}")
        self.kafka_error = name_of_code(refused.code)


def parse_bootstrap(text: str) -> list[Address]:
    """Parse ``host[:port],...``; a malformed one is a usage error."""
    try:
        found = [_parse_broker(each.strip()) for each in text.split(",") if each.strip()]
    except BadAddress as error:
        raise typer.BadParameter(str(error), param_hint="--bootstrap") from error
    if not found:
        raise typer.BadParameter("must name a broker: host:port", param_hint="--bootstrap")
    return [Address(each.host, each.port) for each in found]


def _parse_broker(text: str) -> HostPort:
    """Parse ``host:port`` or ``host``; an IPv6 address needs brackets."""
    if text.count(":") > 1 and "[" not in text and "/" not in text:
        raise BadAddress(f"{text!r}: an IPv6 address needs brackets: [::1]:9092")
    has_port = ":" in text.rpartition("]")[2]
    return parse_host_port(text if has_port else f"{text}:{PORT_DEFAULT}")


def client_ports() -> ClientPorts:
    """Return the real network, clock and randomness."""
    return ClientPorts(TcpNetwork(), SystemClock(), SystemRandom())


def client_options(bootstrap: str | None) -> tuple[list[Address], ClientOptions]:
    """Return the brokers and the options of a client; bad settings are a usage error."""
    properties = client_properties()
    addresses = parse_bootstrap(resolve_bootstrap(bootstrap, properties))
    client_id = properties.get("client.id") or "ottla-cli"
    return addresses, ClientOptions(client_id=client_id, connection=options_of(properties))


def with_cluster(bootstrap: str, work: Callable[[Cluster], Awaitable[T]]) -> T:
    """Run ``work`` with a cluster and return its result; exit 1 if it fails."""
    addresses, options = client_options(bootstrap)

    async def main() -> T:
        async with await Cluster.open(client_ports(), addresses, options) as cluster:
            try:
                return await work(cluster)
            except Refused as error:
                hint = await _hint(cluster, error, cluster.last_api)
                raise _Explained(error, hint) from error

    try:
        return asyncio.run(main())
    except BrokenPipeError:
        raise  # stdout was closed by its reader; the cluster is fine
    except LoginFailed as error:
        fail(f"login failed: {error}" + mismatch(addresses, options.connection))
    except NoBroker as error:
        fail(f"{error}; {advice(str(error), addresses, options.connection)}")
    except _Explained as error:
        fail(str(error), error.kafka_error)
    except RequestTimedOut as error:
        fail(f"no reply in time ({error}); {_ASK_HEALTH}")
    except (Fault, OSError) as error:
        fail(reason_of(error))


async def describe_refusals(cluster: Cluster, refusals: Iterable[Refused | None]) -> list[str]:
    """Return the errors among the answers to the last request, each with what to do about it."""
    api = cluster.last_api
    return [f"{each}{await _hint(cluster, each, api)}" for each in refusals if each is not None]


async def _hint(cluster: Cluster, refused: Refused, api: ApiKey | None) -> str:
    """Return the end of the message of an error: the right that is missing, or a suggestion."""
    fixed = _ADVICE.get(refused.code, "") or permission_hint(refused, api)
    return fixed or await suggestion(cluster, refused)


def permission_hint(refused: Refused, api: ApiKey | None) -> str:
    """Return the end of the message of a refusal: the right, and the command that grants it."""
    from ottla.cli.connecting.missing_rights import find_missing_right, own_principal

    given = given_now()
    topic = given.parameters.get("topic")
    if isinstance(topics := given.parameters.get("topics"), Sequence) and len(topics) == 1:
        (topic,) = topics
    right = find_missing_right(
        refused, api, given.command, topic if isinstance(topic, str) else None
    )
    return "" if right is None else right.text(own_principal(client_properties()))


def right_in_text(text: str, written: Collection[str] = ()) -> str:
    """Return the end of the message of a pipeline: the right it lacked, as `permission_hint`."""
    from ottla.cli.connecting.missing_rights import find_right_in_text, own_principal

    right = find_right_in_text(text, written)
    return "" if right is None else right.text(own_principal(client_properties()))


def first_error(refusals: Iterable[Refused | None]) -> str | None:
    """Return Kafka's name of the first error among the answers of a broker."""
    return next((name_of_code(each.code) for each in refusals if each is not None), None)


def advice(failure: str, addresses: Sequence[Address], options: Options) -> str:
    """Return what to try next, by the cause of the failed connection."""
    if "CERTIFICATE_VERIFY_FAILED" in failure:
        return (
            "the broker's certificate is not trusted: set ssl.ca.location (or "
            "ssl.truststore.location) to its CA, and connect by a name in the certificate"
        )
    if "CERTIFICATE_REQUIRED" in failure:
        return (
            "the listener requires a client certificate: set ssl.certificate.location and "
            "ssl.key.location (or ssl.keystore.location)"
        )
    if text := asyncio.run(explain_mismatch(addresses, options)):
        return text
    if "no answer within" in failure:
        return "check the addresses of --bootstrap, and the network and firewalls on the way"
    return "start one with `ottla up`, or set its address with --bootstrap"


def mismatch(addresses: Sequence[Address], options: Options) -> str:
    """Return the end of the message of a failed login, if the listener has no login at all."""
    text = asyncio.run(explain_mismatch(addresses, options))
    return f"; {text}" if text else ""
