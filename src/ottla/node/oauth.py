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


def build_oauth_validator(
    loaded: Loaded, listener: str, clock: Clock
) -> tuple[Validator, Service | None]:
    """Return the validator, and the service that keeps its keys fresh.

    Raises:
        ConfigError: no key set is configured, or it may not be used. Tokens without a signature
            are accepted only where Kafka's handler class for them is named.
    """
    config = for_listener(loaded, listener, NAME)
    rules = JwtRules(
        issuer=config.sasl_oauthbearer_expected_issuer,
        audiences=config.sasl_oauthbearer_expected_audience,
        subject_claim=config.sasl_oauthbearer_sub_claim_name,
        scope_claim=config.sasl_oauthbearer_scope_claim_name,
        clock_skew_s=config.sasl_oauthbearer_clock_skew_seconds,
    )
    url = config.sasl_oauthbearer_jwks_endpoint_url
    if url is None:
        if config.sasl_server_callback_handler_class != UNSECURED_CLASS:
            rule = f"must be set for OAUTHBEARER on listener {listener}"
            raise ConfigError([Problem(JWKS_KEY, None, rule)])
        return _unsecured(rules, clock), None
    try:
        check_url(url, allows_file=True)
    except BadUrl as error:
        raise ConfigError([Problem(JWKS_KEY, None, str(error))]) from error
    timing = JwksTiming(
        refresh_ms=config.sasl_oauthbearer_jwks_endpoint_refresh_ms,
        retry_ms=config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
        retry_ms_max=config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
    )
    keys = JwksKeys(_fetcher(url, config), rules, clock, timing)
    return keys.validate, keys


def _fetcher(url: str, config: BrokerConfig) -> Callable[[], Awaitable[bytes]]:
    """Return what fetches the keys on a thread; the listener's trust store applies."""
    worker, request = ThreadWorker("jwks"), HttpRequest(url=url)
    try:
        settings = tls_settings_of(config)
        tls = client_context(msgspec.structs.replace(settings, endpoint_identification="https"))
    except BadTls:
        tls = ssl.create_default_context()
    return lambda: worker.run(lambda: fetch(request, tls, allows_file=True))


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
