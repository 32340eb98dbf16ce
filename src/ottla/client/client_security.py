"""Options of a connection from Kafka's client properties.

    options = connection_options({"security.protocol": "SASL_SSL", ...}, random, clock)

Understands the names of Kafka's Java clients (``ssl.truststore.location``, ``sasl.jaas.config``)
and those of librdkafka (``ssl.ca.location``, ``sasl.username``), so that a properties file written
for either works unchanged. Settings about anything else are ignored: such a file has many. A
setting that begins with ``security.``, ``ssl.`` or ``sasl.`` and is unknown is rejected with a
suggestion.

No error, log line or representation contains a secret: errors name keys, and show values only of
keys that are never secret.
"""

import ssl
from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from ottla.client.connection import Options
from ottla.config.addresses import SecurityProtocol
from ottla.runtime.ports import Clock, Random
from ottla.security.http_fetch import BadUrl
from ottla.security.jaas import BadJaas, LoginModule, parse_jaas
from ottla.security.sasl import gssapi, oauthbearer
from ottla.security.sasl.client import (
    MECHANISMS,
    BadCredentials,
    credentials_from,
    password_credentials,
    token_credentials,
)
from ottla.security.sasl.credentials import Credentials
from ottla.security.tls import client_context
from ottla.security.tls_settings import BadTls, client_tls_settings
from ottla.security.token_endpoint import TokenEndpoint, TokenRequest

PROTOCOL: Final = "security.protocol"
MECHANISM: Final = "sasl.mechanism"
JAAS: Final = "sasl.jaas.config"
TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - a key
PREFIXES: Final = ("security.", "ssl.", "sasl.")

_USER: Final = "sasl.username"
_PASSWORD: Final = "sasl.password"  # noqa: S105 - a key
_VERIFICATION: Final = "enable.ssl.certificate.verification"

SECRETS: Final = frozenset(
    """
    sasl.jaas.config sasl.password ssl.key.password ssl.keystore.password ssl.truststore.password
    ssl.keystore.key ssl.key.pem sasl.oauthbearer.client.secret
    sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.assertion.private.key.passphrase
    """.split()  # noqa: SIM905 - as prose it can be read
)
"""Keys whose values are never shown."""

# librdkafka's name -> Kafka's, where the meaning is the same.
_SYNONYMS: Final[Mapping[str, str]] = {
    "sasl.mechanisms": MECHANISM,
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
}

_KNOWN: Final = frozenset(
    """
    security.protocol security.providers
    sasl.client.callback.handler.class sasl.jaas.config sasl.login.callback.handler.class
    sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
    sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
    sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism sasl.username
    sasl.password sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.config
    sasl.oauthbearer.extensions sasl.oauthbearer.header.urlencode sasl.oauthbearer.method
    sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url
    ssl.certificate.location ssl.cipher.suites ssl.enabled.protocols
    ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.location
    ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key
    ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider
    ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates
    ssl.truststore.location ssl.truststore.password ssl.truststore.type
    """.split()  # noqa: SIM905 - as prose it can be read
)
# Of Kerberos (see `_ticket`), or without effect: of the broker's side, of grants not offered.
_IGNORED_PREFIXES: Final = (
    "sasl.kerberos.",
    "sasl.oauthbearer.assertion.",
    "sasl.oauthbearer.expected.",
    "sasl.oauthbearer.jwks.",
    "sasl.oauthbearer.jwt.",
    "sasl.oauthbearer.clock.",
    "sasl.oauthbearer.scope.claim.",
    "sasl.oauthbearer.sub.claim.",
)


class BadClientSecurity(ValueError):
    """Security settings that cannot be used. The text names the key and never a secret."""


def is_security_key(key: str) -> bool:
    """Say whether a client property is about security."""
    return key.startswith(PREFIXES) or key in (_VERIFICATION, "https.ca.location")


def is_secret(key: str) -> bool:
    """Say whether the value of a client property must not be shown."""
    return key in SECRETS or any(
        word in key for word in ("password", "secret", "passphrase", "jaas", "private")
    )


def connection_options(
    properties: Mapping[str, str], random: Random, clock: Clock, options: Options | None = None
) -> Options:
    """Return ``options`` with the TLS and login that Kafka's client properties ask for.

    Reads the key and trust stores now, so that a missing file is reported before a connection.

    Raises:
        BadClientSecurity: a setting is unknown, contradicts another, or names an unusable file.
    """
    known = _with_kafka_names(properties)
    _check_known(known)
    protocol = protocol_of(known)
    try:
        tls = _tls(known) if protocol.uses_tls else None
        login = _login(known, random, clock) if protocol.uses_sasl else None
    except BadTls as error:
        raise BadClientSecurity(str(error)) from error
    return replace(options or Options(), tls=tls, login=login)


def protocol_of(properties: Mapping[str, str]) -> SecurityProtocol:
    """Return ``security.protocol``, in upper or lower case. Raises `BadClientSecurity`."""
    text = properties.get(PROTOCOL) or SecurityProtocol.PLAINTEXT.name
    try:
        return SecurityProtocol[text.strip().upper()]
    except KeyError:
        names = ", ".join(SecurityProtocol.__members__)
        raise BadClientSecurity(f"{PROTOCOL}={text} must be one of {names}") from None


def _with_kafka_names(properties: Mapping[str, str]) -> dict[str, str]:
    """Replace librdkafka's names by Kafka's. Raises `BadClientSecurity` where both are given."""
    found: dict[str, str] = {}
    origins: dict[str, str] = {}
    for key, value in properties.items():
        name = _SYNONYMS.get(key, key)
        if name in found and found[name] != value:
            raise BadClientSecurity(f"{origins[name]} and {key} mean the same; give one of them")
        found[name], origins[name] = value, key
    return found


def _check_known(properties: Mapping[str, str]) -> None:
    if properties.get(_VERIFICATION, "true").strip().lower() == "false":
        raise BadClientSecurity(
            f"{_VERIFICATION}=false is not supported: name the authority with ssl.ca.location; an "
            "empty ssl.endpoint.identification.algorithm turns off the check of the host name only"
        )
    for key in properties:
        if not key.startswith(PREFIXES) or key in _KNOWN or key.startswith(_IGNORED_PREFIXES):
            continue
        import difflib  # imported here: needed only to report a mistake

        near = difflib.get_close_matches(key, [*_KNOWN, *_SYNONYMS], n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise BadClientSecurity(f"unknown setting {key}{hint}")


def _tls(properties: Mapping[str, str]) -> Callable[[], ssl.SSLContext]:
    certificate = properties.get("ssl.certificate.location")
    key = properties.get("ssl.key.location")
    if bool(certificate) != bool(key):
        given, missing = "ssl.certificate.location", "ssl.key.location"
        if key:
            given, missing = missing, given
        raise BadClientSecurity(f"{given} is set without {missing}; give both")
    if certificate and properties.get("ssl.keystore.location"):
        raise BadClientSecurity(
            "ssl.certificate.location and ssl.keystore.location exclude each other"
        )
    context = client_context(client_tls_settings(properties))
    return lambda: context


# -- login ---------------------------------------------------------------------


def _login(properties: Mapping[str, str], random: Random, clock: Clock) -> Credentials:
    mechanism = properties.get(MECHANISM) or gssapi.NAME
    offered = ", ".join((*MECHANISMS, gssapi.NAME))
    if mechanism not in (*MECHANISMS, gssapi.NAME):
        raise BadClientSecurity(f"{MECHANISM}={mechanism} is not supported; use one of {offered}")
    jaas = properties.get(JAAS) or None
    try:
        if mechanism == gssapi.NAME:
            return _ticket(properties, jaas)
        if mechanism == oauthbearer.NAME:
            return _bearer(properties, jaas, clock)
        if properties.get(_USER) is None and properties.get(_PASSWORD) is None:
            if jaas is None:
                raise BadClientSecurity(
                    f"{MECHANISM}={mechanism} needs {_USER} and {_PASSWORD}, or {JAAS}"
                )
            return credentials_from(mechanism, jaas, random)
        return _password(properties, mechanism, random)
    except BadJaas as error:
        raise BadClientSecurity(f"{JAAS}: {error}") from error
    except BadCredentials as error:
        raise BadClientSecurity(str(error)) from error


def _ticket(properties: Mapping[str, str], jaas: str | None) -> Credentials:
    """Return the credentials of GSSAPI, which is the mechanism unless another one is set."""
    from ottla.security.kerberos import (  # imported here: few clients use Kerberos
        BadKerberos,
        KerberosLogin,
        kerberos_login,
        ticket_credentials,
    )

    service = properties.get("sasl.kerberos.service.name")
    try:
        if jaas is not None:
            return ticket_credentials(kerberos_login(parse_jaas(jaas)[0], service))
        # librdkafka's names
        keytab, name = (properties.get(f"sasl.kerberos.{key}") for key in ("keytab", "principal"))
        return ticket_credentials(KerberosLogin(keytab or None, name or None, service))
    except BadKerberos as error:
        hint = "" if properties.get(MECHANISM) else f" ({MECHANISM} is not set, so it is GSSAPI)"
        raise BadClientSecurity(f"{error}{hint}") from error


def _password(properties: Mapping[str, str], mechanism: str, random: Random) -> Credentials:
    if properties.get(JAAS):
        raise BadClientSecurity(f"{JAAS} and {_USER} exclude each other; give one of them")
    user, password = properties.get(_USER), properties.get(_PASSWORD)
    if not user or not password:
        raise BadClientSecurity(f"{_PASSWORD if user else _USER} is not set, or empty")
    return password_credentials(mechanism, user, password, random)


def _bearer(properties: Mapping[str, str], jaas: str | None, clock: Clock) -> Credentials:
    url = properties.get(TOKEN_URL)
    if not url:
        raise BadClientSecurity(
            f"{MECHANISM}=OAUTHBEARER needs {TOKEN_URL}: a https URL, or file:///path of a token"
        )
    module = LoginModule("", {}) if jaas is None else parse_jaas(jaas)[0]
    of_client = "sasl.oauthbearer.client.credentials.client."
    request = TokenRequest(
        url=url,
        client_id=properties.get(f"{of_client}id") or module.options.get("clientId"),
        client_secret=properties.get(f"{of_client}secret") or module.options.get("clientSecret"),
        scope=properties.get("sasl.oauthbearer.scope") or module.options.get("scope"),
        urlencodes_header=properties.get("sasl.oauthbearer.header.urlencode", "").lower() == "true",
    )
    if not url.startswith("file:") and not (request.client_id and request.client_secret):
        raise BadClientSecurity(
            f"{TOKEN_URL} needs {of_client}id and {of_client}secret, or clientId and clientSecret "
            f"in {JAAS}"
        )
    try:
        return token_credentials(TokenEndpoint(request, clock, _endpoint_tls(properties, module)))
    except BadUrl as error:
        raise BadClientSecurity(f"{TOKEN_URL}: {error}") from error


def _endpoint_tls(
    properties: Mapping[str, str], module: LoginModule
) -> Callable[[], ssl.SSLContext | None]:
    """Return the TLS of the token endpoint, which has nothing to do with that of the brokers."""
    own = {key: value for key, value in module.options.items() if key.startswith("ssl.")}
    if authorities := properties.get("https.ca.location"):
        own.setdefault("ssl.truststore.location", authorities)
    context = client_context(client_tls_settings(own)) if own else None
    return lambda: context
