"""TLS contexts, users and credentials of one node, constructed before anything is opened.

A listener has its own settings (``listener.name.<name>.ssl.*`` and ``.sasl.*`` override the general
ones). To other nodes this one connects as the settings of the inter-broker listener, or of the
controller listener, say. Settings or files that cannot be used keep the node from starting.

Loaded only where a listener uses TLS or SASL; see `ottla.node.security_port`.
"""

import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import msgspec

from ottla.client.connection import Options
from ottla.config.addresses import SecurityProtocol
from ottla.config.generated import BrokerConfig
from ottla.config.key_table import LISTENER_PREFIX, base_of_listener_key
from ottla.config.layers import Layers
from ottla.config.listeners import Listener
from ottla.config.loading import Loaded, for_listener
from ottla.config.problems import ConfigError, Problem
from ottla.config.unenforced import STORE_KEYS
from ottla.config.values import BadValue
from ottla.metadata.image import Image
from ottla.node.kerberos_logins import build_gssapi, kerberos_credentials
from ottla.node.oauth import build_oauth_validator
from ottla.node.scram_accounts import ScramAccounts
from ottla.node.tls_reload import TlsReload
from ottla.runtime.ports import Clock, Random
from ottla.runtime.supervisor import Service
from ottla.security.certificate_login import CertificateLogins, LoginByCertificate
from ottla.security.jaas import BadJaas, parse_jaas
from ottla.security.principal_mapping import BadMappingRules
from ottla.security.sasl import gssapi, oauthbearer, plain
from ottla.security.sasl.client import BadCredentials, credentials_from
from ottla.security.sasl.credentials import Credentials
from ottla.security.sasl.exchange import Exchange, Mechanisms
from ottla.security.sasl.oauthbearer import OAuthBearerExchange, Validator
from ottla.security.sasl.plain import PlainExchange
from ottla.security.sasl.scram import ScramMechanism
from ottla.security.sasl.session import SaslSession
from ottla.security.tls import TlsContexts, client_context, server_context
from ottla.security.tls_settings import BadTls, TlsSettings, tls_settings_of
from ottla.server.authenticator import Authenticator
from ottla.server.events import ServerEvents
from ottla.server.sasl_authenticator import SaslAuthenticator

log = logging.getLogger(__name__)

_SCRAM: Final = {str(each): each for each in ScramMechanism}
SUPPORTED: Final = (plain.NAME, *_SCRAM, oauthbearer.NAME, gssapi.NAME)
METRICS: Final = "metrics"
"""The name in ``listener.name.metrics.ssl.*``, for the keys of ``ottla.metrics.listener``."""


class SecuredListener:
    """`ListenerSecurity` of a listener with TLS, SASL or both."""

    def __init__(
        self,
        contexts: TlsContexts | None,
        certificate_login: LoginByCertificate | None,
        sasl: "_Sasl | None",
    ) -> None:
        self._contexts = contexts
        self._certificate_login = certificate_login
        self._sasl = sasl

    @property
    def tls(self) -> Callable[[], ssl.SSLContext] | None:
        """Returns the context of a handshake that begins now; None without TLS."""
        return None if self._contexts is None else self._contexts.get

    @property
    def certificate_login(self) -> LoginByCertificate | None:
        """Returns the login of a certificate; None where certificates have no say in it."""
        return self._certificate_login

    def authenticator(
        self, image: Callable[[], Image], events: ServerEvents
    ) -> Callable[[], Authenticator] | None:
        """Return what makes the authenticator of a connection; None without SASL."""
        return None if self._sasl is None else self._sasl.authenticator(image, events)


class _Sasl(msgspec.Struct, frozen=True):
    """The SASL settings of a listener."""

    config: BrokerConfig
    clock: Clock
    mechanisms: Callable[[Callable[[], Image]], Mechanisms]

    def authenticator(
        self, image: Callable[[], Image], events: ServerEvents
    ) -> Callable[[], Authenticator]:
        mechanisms, config = self.mechanisms(image), self.config

        def make() -> Authenticator:
            session = SaslSession(mechanisms, self.clock, config.connections_max_reauth_ms)
            return SaslAuthenticator(
                session,
                events,
                frame_bytes_max=config.sasl_server_max_receive_size,
                failure_delay_ms=config.connection_failed_authentication_delay_ms,
            )

        return make


class NodeSecurity:
    """The security of all listeners of a node, and of its connections to other nodes."""

    def __init__(self, loaded: Loaded, clock: Clock, random: Random) -> None:
        self._loaded = loaded
        self._clock = clock
        self._random = random
        # Salts of unknown users depend on it while the cluster has no SCRAM user.
        self._scram_secret = random.bytes(32)
        self._peers: dict[str, Options] = {}
        self._contexts: list[TlsContexts] = []
        # The contexts of each listener, by its name in lower case: its own, and those to peers.
        self._of_listener: dict[str, list[TlsContexts]] = {}
        interval_ms = loaded.broker.ottla_tls_reload_interval_ms
        self._reload = TlsReload(self._contexts, interval_ms)
        self.services: list[Service] = [self._reload] if interval_ms else []
        problems: list[Problem] = []
        self._listeners: dict[str, SecuredListener] = {}
        for listener in loaded.listeners.all:
            try:
                self._listeners[listener.name] = self._secured(listener)
            except ConfigError as error:
                problems += error.problems
        for name, mechanism in self._peer_listeners():
            try:
                self._peers[name] = self._peer_options(name, mechanism)
            except ConfigError as error:
                problems += error.problems
        self.metrics_tls: Callable[[], ssl.SSLContext] | None = None
        if loaded.broker.ottla_metrics_ssl_enable:
            try:
                contexts = self._tls(METRICS, for_listener(loaded, METRICS), is_server=True)
            except ConfigError as error:
                problems += error.problems
            else:
                self.metrics_tls = contexts.get
        if problems:
            raise ConfigError(problems)

    def of_listener(self, listener: Listener) -> SecuredListener:
        """Return the security of a listener; one that is added later is made now.

        Raises:
            ConfigError: its settings cannot be used.
        """
        found = self._listeners.get(listener.name)
        if found is None:
            found = self._listeners[listener.name] = self._secured(listener)
        return found

    def peer_options(self, listener: str) -> Options:
        """Return how to connect to a listener of this name on another node."""
        return self._peers[listener.upper()]

    def reload_tls(self) -> None:
        """Make every TLS context anew from its files.

        Raises:
            BadTls: the first that could not be; it stays. ConfigError: no listener uses TLS.
        """
        if not self._contexts:
            raise ConfigError([Problem("listeners", None, "no listener uses TLS")])
        self._reload.reload_all()

    def apply(self, config: BrokerConfig, layers: Layers) -> None:
        """Use the TLS stores of listeners as altered at run time; follows `DynamicConfig`.

        Stores that cannot be used are logged, and the old certificate stays: the files may have
        changed since the change was accepted.
        """
        for name, all_contexts in self._of_listener.items():
            try:
                wanted = self._settings_with(name, layers)
                for contexts in all_contexts:
                    if contexts.settings != wanted:
                        contexts.reload(wanted)
                        log.info("stores altered listener=%s files=%s", name, wanted.files)
            except (BadTls, BadValue) as error:
                log.error("stores not altered listener=%s reason=%s", name, error)  # noqa: TRY400

    def store_problems(self, listener: str, layers: Layers) -> list[Problem]:
        """Return why a listener cannot use the TLS stores of ``layers``."""
        key = f"{LISTENER_PREFIX}{listener.lower()}.ssl."
        if listener.lower() not in self._of_listener:
            return [
                Problem(key, None, "has no TLS; set it up in the configuration file of the node")
            ]
        try:
            settings = self._settings_with(listener, layers)
            server_context(settings)
            client_context(settings)
        except (BadTls, BadValue) as error:
            return [Problem(key, None, str(error))]
        return []

    def _settings_with(self, listener: str, layers: Layers) -> TlsSettings:
        """Return the TLS settings of a listener: its file, and its stores as altered."""
        altered = {
            name: text
            for name, text in layers.dynamic_broker.items()
            if (key := base_of_listener_key(name)) is not None and key.name in STORE_KEYS
        }
        static = MappingProxyType({**self._loaded.static, **altered})
        return tls_settings_of(for_listener(replace(self._loaded, static=static), listener))

    # -- listeners ---------------------------------------------------------------

    def _secured(self, listener: Listener) -> SecuredListener:
        config = for_listener(self._loaded, listener.name)
        tls = by_certificate = sasl = None
        if listener.protocol.uses_tls:
            tls = self._tls(listener.name, config, is_server=True)
            by_certificate = self._certificate_logins(listener, config)
        if listener.protocol.uses_sasl:
            sasl = _Sasl(config, self._clock, self._mechanisms(listener.name, config))
        return SecuredListener(tls, by_certificate, sasl)

    def _certificate_logins(
        self, listener: Listener, config: BrokerConfig
    ) -> CertificateLogins | None:
        ends = config.connections_max_reauth_ms > 0
        rules = None if listener.protocol.uses_sasl else config.ssl_principal_mapping_rules
        if rules is None and not ends:
            return None
        try:
            return CertificateLogins(rules, self._clock, ends_with_certificate=ends)
        except BadMappingRules as error:
            raise ConfigError([Problem("ssl.principal.mapping.rules", None, str(error))]) from error

    def _tls(self, name: str, config: BrokerConfig, *, is_server: bool) -> TlsContexts:
        make = server_context if is_server else client_context
        try:
            contexts = TlsContexts(tls_settings_of(config), make)
        except BadTls as error:
            raise ConfigError([Problem(f"ssl.* of listener {name}", None, str(error))]) from error
        self._contexts.append(contexts)
        self._of_listener.setdefault(name.lower(), []).append(contexts)
        return contexts

    def _mechanisms(
        self, name: str, config: BrokerConfig
    ) -> Callable[[Callable[[], Image]], Mechanisms]:
        enabled = config.sasl_enabled_mechanisms
        unsupported = [each for each in enabled if each not in SUPPORTED]
        if unsupported or not enabled:
            rule = f"must be some of {', '.join(SUPPORTED)}"
            key = f"sasl.enabled.mechanisms of listener {name}"
            raise ConfigError([Problem(key, ",".join(enabled), rule)])
        users = self._plain_users(name) if plain.NAME in enabled else {}
        validator = self._validator(name) if oauthbearer.NAME in enabled else None
        tickets = {gssapi.NAME: build_gssapi(self._loaded, name)} if gssapi.NAME in enabled else {}

        def mechanisms(image: Callable[[], Image]) -> Mechanisms:
            accounts = ScramAccounts(image, config.delegation_token_secret_key, self._clock)
            made = {
                plain.NAME: lambda: PlainExchange(users.get),
                oauthbearer.NAME: lambda: _bearer(validator),
                **{str(each): self._scram(each, accounts) for each in ScramMechanism},
                **tickets,
            }
            return {each: made[each] for each in enabled}

        return mechanisms

    def _scram(self, mechanism: ScramMechanism, accounts: ScramAccounts) -> Callable[[], Exchange]:
        return lambda: accounts.exchange(mechanism, self._random, self._scram_secret)

    def _plain_users(self, name: str) -> Mapping[str, str]:
        text = for_listener(self._loaded, name, plain.NAME).sasl_jaas_config
        key = f"listener.name.{name.lower()}.plain.sasl.jaas.config"
        if text is None:
            rule = 'must be set: PLAIN needs users, as in user_alice="password"'
            raise ConfigError([Problem(key, None, rule)])
        try:
            users = parse_jaas(text.reveal())[0].users
        except BadJaas as error:
            raise ConfigError([Problem(key, None, str(error))]) from error
        if not users:
            log.warning("listener %s has PLAIN enabled and no user in %s", name, key)
        return users

    def _validator(self, name: str) -> Validator:
        validator, service = build_oauth_validator(self._loaded, name, self._clock)
        if service is not None:
            self.services.append(service)
        return validator

    # -- other nodes -------------------------------------------------------------

    def _peer_listeners(self) -> list[tuple[str, str]]:
        """Return the names of listeners that this node connects to, with the SASL mechanism."""
        config, listeners = self._loaded.broker, self._loaded.listeners
        found = {
            name.upper(): config.sasl_mechanism_controller_protocol
            for name in config.controller_listener_names
        }
        broker = listeners.inter_broker or config.inter_broker_listener_name
        if broker is None:
            broker = config.security_inter_broker_protocol
        found.setdefault(broker.upper(), config.sasl_mechanism_inter_broker_protocol)
        return list(found.items())

    def _peer_options(self, name: str, mechanism: str) -> Options:
        protocol = self._loaded.listeners.protocols.get(name, SecurityProtocol.PLAINTEXT)
        tls = login = None
        if protocol.uses_tls:
            contexts = self._tls(name, for_listener(self._loaded, name), is_server=False)
            tls = contexts.get
        if protocol.uses_sasl:
            login = self._credentials(name, mechanism)
        return Options(tls=tls, login=login)

    def _credentials(self, name: str, mechanism: str) -> Credentials:
        if mechanism == gssapi.NAME:
            return kerberos_credentials(self._loaded, name)
        jaas = for_listener(self._loaded, name, mechanism).sasl_jaas_config
        text = None if jaas is None else jaas.reveal()
        try:
            return credentials_from(mechanism, text, self._random)
        except (BadCredentials, BadJaas) as error:
            key = f"listener.name.{name.lower()}.{mechanism.lower()}.sasl.jaas.config"
            raise ConfigError([Problem(key, None, str(error))]) from error


def _bearer(validator: Validator | None) -> Exchange:
    assert validator is not None, "OAUTHBEARER is enabled only with a validator"
    return OAuthBearerExchange(validator)
