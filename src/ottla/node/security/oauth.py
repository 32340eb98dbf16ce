"""The validator of bearer tokens of one listener, from its ``sasl.oauthbearer.*`` settings."""

import base64
import binascii
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from ottla.config.generated import BrokerConfig
from ottla.config.loading import Loaded, for_listener
from ottla.config.problems import ConfigError, Problem
from ottla.runtime.ports import Clock
from ottla.runtime.supervisor import Service
from ottla.runtime.worker import ThreadWorker
from ottla.security.http_fetch import BadUrl, HttpRequest, check_url, fetch
from ottla.security.introspection import (
    ASKED_MAX,
    IntrospectionServer,
    TokenIntrospection,
    introspection_request,
)
from ottla.security.jwks import JwksKeys, JwksTiming
from ottla.security.jwt_claims import BadToken, JwtClaims, JwtRules, check_claims
from ottla.security.sasl.oauthbearer import NAME, Validator
from ottla.security.tls import client_context
from ottla.security.tls_settings import BadTls, tls_settings_of

UNSECURED_CLASS: Final = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
    "OAuthBearerUnsecuredValidatorCallbackHandler"
)
JWKS_KEY: Final = "sasl.oauthbearer.jwks.endpoint.url"
INTROSPECTION_KEY: Final = "ottla.oauthbearer.introspection.endpoint.url"


def build_oauth_validator(
    loaded: Loaded, listener: str, clock: Clock
) -> tuple[Validator, Service | None]:
    """Return the validator, and the service that keeps its keys fresh.

    Raises:
        ConfigError: no key set is configured, or it may not be used. Tokens without a signature
            are accepted only where Kafka's handler class for them is named.
    """
    config = for_listener(loaded, listener, NAME)
    rules = _rules(config)
    url, opaque = (
        config.sasl_oauthbearer_jwks_endpoint_url,
        config.ottla_oauthbearer_introspection_endpoint_url,
    )
    if opaque is not None:
        if url is not None:
            rule = f"must not be set together with {JWKS_KEY}"
            raise ConfigError([Problem(INTROSPECTION_KEY, None, rule)])
        return _introspection(opaque, config, rules, clock), None
    if url is None:
        if config.sasl_server_callback_handler_class != UNSECURED_CLASS:
            rule = f"must be set for OAUTHBEARER on listener {listener}"
            raise ConfigError([Problem(JWKS_KEY, None, rule)])
        return _unsecured(rules, clock), None
    _check_url(JWKS_KEY, url, config, allows_file=True)
    timing = JwksTiming(
        refresh_ms=config.sasl_oauthbearer_jwks_endpoint_refresh_ms,
        retry_ms=config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
        retry_ms_max=config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
    )
    keys = JwksKeys(_fetcher(url, config), rules, clock, timing)
    return keys.validate, keys


def _rules(config: BrokerConfig) -> JwtRules:
    return JwtRules(
        issuer=config.sasl_oauthbearer_expected_issuer,
        audiences=config.sasl_oauthbearer_expected_audience,
        subject_claim=config.sasl_oauthbearer_sub_claim_name,
        scope_claim=config.sasl_oauthbearer_scope_claim_name,
        required_scopes=config.ottla_oauthbearer_required_scopes,
        clock_skew_s=config.sasl_oauthbearer_clock_skew_seconds,
    )


def _check_url(key: str, url: str, config: BrokerConfig, *, allows_file: bool = False) -> None:
    try:
        check_url(url, allows_file=allows_file)
    except BadUrl as error:
        raise ConfigError([Problem(key, None, str(error))]) from error
    allowed = config.ottla_oauthbearer_allowed_urls
    if allowed and url not in allowed:
        raise ConfigError([Problem(key, None, "is not among ottla.oauthbearer.allowed.urls")])


def _introspection(url: str, config: BrokerConfig, rules: JwtRules, clock: Clock) -> Validator:
    _check_url(INTROSPECTION_KEY, url, config)
    client = config.ottla_oauthbearer_introspection_client_id
    secret = config.ottla_oauthbearer_introspection_client_secret
    if client is None or secret is None:
        rule = "needs ottla.oauthbearer.introspection.client.id and .client.secret"
        raise ConfigError([Problem(INTROSPECTION_KEY, None, rule)])
    server = IntrospectionServer(
        url=url,
        client_id=client,
        client_secret=secret.reveal(),
        timeout_ms=config.ottla_oauthbearer_introspection_timeout_ms,
    )
    worker, tls = ThreadWorker("introspection", ASKED_MAX), _endpoint_tls(config)

    def ask(token: str) -> Awaitable[bytes]:
        request = introspection_request(server, token)
        return worker.run(lambda: fetch(request, tls))

    cache_ms = config.ottla_oauthbearer_introspection_cache_ms
    return TokenIntrospection(ask, rules, clock, cache_ms).validate


def _fetcher(url: str, config: BrokerConfig) -> Callable[[], Awaitable[bytes]]:
    """Return what fetches the keys on a thread."""
    worker, request, tls = ThreadWorker("jwks"), HttpRequest(url=url), _endpoint_tls(config)
    return lambda: worker.run(lambda: fetch(request, tls, allows_file=True))


def _endpoint_tls(config: BrokerConfig) -> ssl.SSLContext:
    """Return the TLS of an identity provider; the listener's trust store applies."""
    try:
        settings = tls_settings_of(config)
        return client_context(msgspec.structs.replace(settings, endpoint_identification="https"))
    except BadTls:
        return ssl.create_default_context()


def _unsecured(rules: JwtRules, clock: Clock) -> Validator:
    """Return a validator that believes unsigned tokens, for development only."""

    def validate(token: str) -> JwtClaims:
        parts = token.split(".")
        if len(parts) != 3 or parts[2]:
            raise BadToken("not an unsecured token")
        try:
            header, claims = (msgspec.json.decode(_decoded(part)) for part in parts[:2])
        except (binascii.Error, msgspec.DecodeError, ValueError) as error:
            raise BadToken("not a token") from error
        if not isinstance(header, dict) or header.get("alg") != "none":
            raise BadToken("not an unsecured token")
        if not isinstance(claims, dict):
            raise BadToken("the token's claims are not an object")
        return check_claims(claims, rules, clock.now())

    return validate


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
