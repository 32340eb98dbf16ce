"""TLS contexts, users and credentials of one node, constructed before anything is opened.

A listener has its own settings (``listener.name.<name>.ssl.*`` and ``.sasl.*`` override the general
ones). To other nodes this one connects as the settings of the inter-broker listener, or of the
controller listener, say. Settings or files that cannot be used keep the node from starting.

Loaded only where a listener uses TLS or SASL; see `ottla.node.security.security_port`.
"""

import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from msgspec import structs

from ottla.client.connection import Options
from ottla.config.addresses import SecurityProtocol
from ottla.config.dynamic import listeners_of
from ottla.config.generated import BrokerConfig
from ottla.config.key_definition import Scope
from ottla.config.key_table import KEYS, LISTENER_PREFIX, base_of_listener_key
from ottla.config.layers import Layers, Texts, parse_checked
from ottla.config.listeners import REGISTRY_LISTENER, Listener, registry_listener
from ottla.config.loading import Loaded, for_listener
from ottla.config.problems import ConfigError, Problem
from ottla.config.unenforced import LOGIN_KEYS, PEER_MECHANISM, STORE_KEYS
from ottla.config.values import BadValue, Value
from ottla.metadata.image import Image
from ottla.node.security.kerberos_logins import build_gssapi, kerberos_credentials
from ottla.node.security.oauth import build_oauth_validator
from ottla.node.security.sasl_listeners import (
    PeerLogin,
    SaslListener,
    SaslSettings,
    enabled_mechanisms,
    jaas_key,
    login_module,
)
from ottla.node.security.scram_accounts import ScramAccounts
from ottla.node.security.security_port import no_sasl
from ottla.node.security.tls_reload import TlsReload
from ottla.runtime.ports import Clock, Random
from ottla.runtime.supervisor import Service
from ottla.security.certificate_changes import ChangeRules, check_change, reason_against
from ottla.security.certificate_login import CertificateLogins, LoginByCertificate
from ottla.security.jaas import BadJaas
from ottla.security.key_stores import read_key_store
from ottla.security.principal_mapping import BadMappingRules
from ottla.security.sasl import gssapi, oauthbearer, plain
from ottla.security.sasl.client import BadCredentials, credentials_from
from ottla.security.sasl.credentials import Credentials
from ottla.security.sasl.exchange import Exchange, Mechanisms
from ottla.security.sasl.oauthbearer import OAuthBearerExchange, Validator
from ottla.security.sasl.plain import PlainExchange
from ottla.security.sasl.scram import ScramMechanism
from ottla.security.tls import TlsContexts, client_context, server_context
from ottla.security.tls_settings import BadTls, TlsSettings, tls_settings_of
from ottla.server.authenticator import Authenticator
from ottla.server.events import ServerEvents

log = logging.getLogger(__name__)

_SCRAM: Final = {str(each): each for each in ScramMechanism}
_ANY_ADDRESS: Final = ("", "0.0.0.0", "::")  # noqa: S104 - nothing is bound here
METRICS: Final = "metrics"
"""The name in ``listener.name.metrics.ssl.*``, for the keys of ``ottla.metrics.listener``."""


class SecuredListener:
    """`ListenerSecurity` of a listener with TLS, SASL or both."""

    def __init__(
        self,
        contexts: TlsContexts | None,
        certificate_login: LoginByCertificate | None,
        sasl: SaslListener | None,
        client_contexts: TlsContexts | None = None,
    ) -> None:
        self._contexts = contexts
        self._client_contexts = client_contexts
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

    def mechanisms(self, image: Callable[[], Image]) -> Mechanisms | None:
        """Return the SASL mechanisms, for logins over another protocol; None without SASL."""
        return None if self._sasl is None else self._sasl.mechanisms(image)

    @property
    def client_tls(self) -> Callable[[], ssl.SSLContext] | None:
        """Returns the context for connections to the same listener of other nodes."""
        return None if self._client_contexts is None else self._client_contexts.get


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
        # By the names of listeners in lower case.
        self._sasl: dict[str, SaslListener] = {}
        self._peer_logins: dict[str, PeerLogin] = {}
        self._validators: dict[str, Validator] = {}
        self._altered_logins: Mapping[str, Texts] = {}
        self._layers = Layers(static=loaded.static)
        self._is_running = False
        interval_ms = loaded.broker.ottla_tls_reload_interval_ms
        self._reload = TlsReload(self._contexts, interval_ms)
        self.services: list[Service] = [self._reload] if interval_ms else []
        problems: list[Problem] = []
        self._listeners: dict[str, SecuredListener] = {}
        registry = registry_listener(loaded.broker)
        for listener in (*loaded.listeners.all, *(() if registry is None else (registry,))):
            try:
                self._listeners[listener.name] = self._secured(listener, loaded)
            except ConfigError as error:
                problems += error.problems
        for name, mechanism in self._peer_listeners(loaded.broker).items():
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
        self._is_running = True

    def of_listener(self, listener: Listener, layers: Layers | None = None) -> SecuredListener:
        """Return the security of a listener; one that is added later is made now.

        ``layers`` are the settings in force with the listener; those in force now unless given.

        Raises:
            ConfigError: its settings cannot be used.
        """
        found = self._listeners.get(listener.name)
        if found is None:
            loaded = self._loaded_with(layers or self._layers, STORE_KEYS | LOGIN_KEYS)
            found = self._listeners[listener.name] = self._secured(listener, loaded)
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
        """Use TLS stores and logins of listeners as altered at run time; follows `DynamicConfig`.

        What cannot be used is logged, and the old settings stay: files may have changed since the
        change was accepted.
        """
        self._layers = layers
        for name, all_contexts in self._of_listener.items():
            try:
                wanted = self._settings_with(name, layers)
                for contexts in all_contexts:
                    if contexts.settings != wanted:
                        contexts.reload(wanted)
                        log.info("stores altered listener=%s files=%s", name, wanted.files)
            except (BadTls, BadValue) as error:
                log.error("stores not altered listener=%s reason=%s", name, error)  # noqa: TRY400
        self._apply_logins(layers)

    def _apply_logins(self, layers: Layers) -> None:
        names = {name for name in self._sasl if _find_listener(name, layers)} | {*self._peer_logins}
        base = {name: text for name, text in layers.dynamic_broker.items() if name in LOGIN_KEYS}
        altered = {name: {**base, **_altered(name, layers, LOGIN_KEYS)} for name in names}
        for name in names:
            if altered[name] == self._altered_logins.get(name, {}):
                continue
            try:
                sasl, credentials = self._logins_with(name, layers)
            except (ConfigError, BadValue) as error:
                log.error("logins not altered listener=%s reason=%s", name, error)  # noqa: TRY400
                continue
            if sasl is not None:
                self._sasl[name].settings = sasl
            if credentials is not None:
                self._peer_logins[name].newest = credentials
            log.info("logins altered listener=%s keys=%s", name, ", ".join(sorted(altered[name])))
        self._altered_logins = altered

    def store_problems(self, listener: str, layers: Layers) -> list[Problem]:
        """Return why a listener cannot use the TLS stores of ``layers``.

        As in Kafka, stores of a listener that has no TLS, or does not exist, are stored: it may be
        added later, and is checked when it is opened.
        """
        key = f"{LISTENER_PREFIX}{listener.lower()}.ssl."
        if listener.lower() not in self._of_listener:
            return []
        try:
            settings = self._settings_with(listener, layers)
            server_context(settings)
            client_context(settings)
            self._check_altered(listener.lower(), settings)
        except (BadTls, BadValue) as error:
            return [Problem(key, None, str(error))]
        return []

    def _check_altered(self, listener: str, settings: TlsSettings) -> None:
        """Check the certificate of altered stores against the one in force. Raises `BadTls`."""
        material = read_key_store(settings.key_store)
        rules = ChangeRules(
            host=self._advertised_host(listener),
            allows_dn_changes=self._loaded.broker.ssl_allow_dn_changes,
            allows_san_changes=self._loaded.broker.ssl_allow_san_changes,
        )
        new = None if material is None else material.leaf
        check_change(self._of_listener[listener][0].certificate, new, rules, self._clock.now())

    def login_problems(self, listener: str, layers: Layers) -> list[Problem]:
        """Return why a listener cannot use the SASL settings of ``layers``."""
        present = _find_listener(listener, layers)
        if present is None:
            # It may be removed together with its settings.
            return [no_sasl(listener)] if _altered(listener, layers, LOGIN_KEYS) else []
        if listener.lower() not in self._sasl:
            # An added one is checked when it is opened.
            return [] if present.protocol.uses_sasl else [no_sasl(listener)]
        try:
            self._logins_with(listener.lower(), layers)
        except ConfigError as error:
            return list(error.problems)
        except BadValue as error:
            return [Problem(f"{LISTENER_PREFIX}{listener.lower()}.sasl.", None, str(error))]
        return []

    def _logins_with(
        self, name: str, layers: Layers
    ) -> tuple[SaslSettings | None, Credentials | None]:
        """Return the logins of a listener, and those of this node at others, as altered.

        Raises:
            ConfigError, BadValue: they cannot be used.
        """
        loaded = self._loaded_with(layers, LOGIN_KEYS)
        sasl = credentials = None
        if name in self._sasl:
            sasl = self._sasl_settings(loaded, name)
        if name in self._peer_logins:
            mechanism = self._peer_listeners(loaded.broker)[name.upper()]
            if sasl is not None and mechanism not in sasl.config.sasl_enabled_mechanisms:
                rule = (
                    "must be included in sasl.enabled.mechanisms when SASL is used for "
                    "inter-broker communication"
                )
                raise ConfigError([Problem(PEER_MECHANISM, None, rule)])
            credentials = self._credentials(loaded, name, mechanism)
        return sasl, credentials

    def _settings_with(self, listener: str, layers: Layers) -> TlsSettings:
        """Return the TLS settings of a listener: its file, and its stores as altered."""
        return tls_settings_of(for_listener(self._loaded_with(layers, STORE_KEYS), listener))

    def _loaded_with(self, layers: Layers, keys: frozenset[str]) -> Loaded:
        """Return the file's settings with those of ``keys`` that were altered.

        Raises:
            BadValue: one cannot be read.
        """
        altered: dict[str, str] = {}
        fields: dict[str, Value] = {}
        for name, text in layers.dynamic_broker.items():
            own = KEYS[Scope.BROKER][name] if name in LOGIN_KEYS else None
            key = own or base_of_listener_key(name)
            if key is None or key.name not in keys:
                continue
            altered[name] = text
            if own is not None:
                fields[key.field] = parse_checked(key, text)
        static = MappingProxyType({**self._loaded.static, **altered})
        broker = structs.replace(self._loaded.broker, **fields)
        return replace(self._loaded, static=static, broker=broker)

    # -- listeners ---------------------------------------------------------------

    def _secured(self, listener: Listener, loaded: Loaded) -> SecuredListener:
        config = for_listener(loaded, listener.name)
        tls = by_certificate = sasl = client_tls = None
        if listener.protocol.uses_tls:
            tls = self._tls(listener.name, config, is_server=True)
            if listener.name == REGISTRY_LISTENER:
                client_tls = self._tls(listener.name, config, is_server=False)
            by_certificate = self._certificate_logins(listener, config)
        if listener.protocol.uses_sasl:
            sasl = SaslListener(self._sasl_settings(loaded, listener.name), self._clock)
            self._sasl[listener.name.lower()] = sasl
        return SecuredListener(tls, by_certificate, sasl, client_tls)

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
        rules = ChangeRules(host=self._advertised_host(name))
        try:
            contexts = TlsContexts(
                tls_settings_of(config),
                make,
                lambda old, new: check_change(old, new, rules, self._clock.now()),
            )
        except BadTls as error:
            raise ConfigError([Problem(f"ssl.* of listener {name}", None, str(error))]) from error
        if is_server and contexts.certificate is not None:
            reason = reason_against(contexts.certificate, rules.host, self._clock.now())
            if reason is not None:
                log.warning("listener=%s %s: clients will refuse it", name, reason)
        self._contexts.append(contexts)
        self._of_listener.setdefault(name.lower(), []).append(contexts)
        return contexts

    def _advertised_host(self, name: str) -> str | None:
        """Return the name under which clients reach a listener; None if it is not known."""
        for listener in self._loaded.listeners.all:
            if listener.name.lower() == name.lower():
                host = (listener.advertised or listener.bind).host
                return None if host in _ANY_ADDRESS else host
        return None

    def _sasl_settings(self, loaded: Loaded, name: str) -> SaslSettings:
        """Return what the logins of a listener follow.

        Raises:
            ConfigError: the settings cannot be used.
        """
        config = for_listener(loaded, name)
        enabled = enabled_mechanisms(loaded, name)
        users = self._plain_users(loaded, name) if plain.NAME in enabled else {}
        validator = self._validator(name) if oauthbearer.NAME in enabled else None
        tickets = {gssapi.NAME: build_gssapi(loaded, name)} if gssapi.NAME in enabled else {}

        def mechanisms(image: Callable[[], Image]) -> Mechanisms:
            accounts = ScramAccounts(image, config.delegation_token_secret_key, self._clock)
            made = {
                plain.NAME: lambda: PlainExchange(users.get),
                oauthbearer.NAME: lambda: _bearer(validator),
                **{str(each): self._scram(each, accounts) for each in ScramMechanism},
                **tickets,
            }
            return {each: made[each] for each in enabled}

        return SaslSettings(config, mechanisms)

    def _scram(self, mechanism: ScramMechanism, accounts: ScramAccounts) -> Callable[[], Exchange]:
        return lambda: accounts.exchange(mechanism, self._random, self._scram_secret)

    def _plain_users(self, loaded: Loaded, name: str) -> Mapping[str, str]:
        users = login_module(loaded, name, plain.NAME).users
        if not users:
            key = jaas_key(name, plain.NAME)
            log.warning("listener %s has PLAIN enabled and no user in %s", name, key)
        return users

    def _validator(self, name: str) -> Validator:
        """Return the validator of bearer tokens of a listener; its settings are those of the file.

        Raises:
            ConfigError: they cannot be used, or bearer tokens are enabled while the node runs.
        """
        known = self._validators.get(name.lower())
        if known is not None:
            return known
        if self._is_running:
            rule = "must not get OAUTHBEARER while the node runs: set it in its configuration file"
            raise ConfigError([Problem(f"sasl.enabled.mechanisms of listener {name}", None, rule)])
        validator, service = build_oauth_validator(self._loaded, name, self._clock)
        if service is not None:
            self.services.append(service)
        self._validators[name.lower()] = validator
        return validator

    # -- other nodes -------------------------------------------------------------

    def _peer_listeners(self, config: BrokerConfig) -> dict[str, str]:
        """Return the names of listeners that this node connects to, with the SASL mechanism."""
        listeners = self._loaded.listeners
        found = {
            name.upper(): config.sasl_mechanism_controller_protocol
            for name in config.controller_listener_names
        }
        broker = listeners.inter_broker or config.inter_broker_listener_name
        if broker is None:
            broker = config.security_inter_broker_protocol
        found.setdefault(broker.upper(), config.sasl_mechanism_inter_broker_protocol)
        return found

    def _peer_options(self, name: str, mechanism: str) -> Options:
        protocol = self._loaded.listeners.protocols.get(name, SecurityProtocol.PLAINTEXT)
        tls = login = None
        if protocol.uses_tls:
            contexts = self._tls(name, for_listener(self._loaded, name), is_server=False)
            tls = contexts.get
        if protocol.uses_sasl:
            peer = PeerLogin(self._credentials(self._loaded, name, mechanism))
            self._peer_logins[name.lower()] = peer
            login = peer.credentials()
        return Options(tls=tls, login=login)

    def _credentials(self, loaded: Loaded, name: str, mechanism: str) -> Credentials:
        if mechanism == gssapi.NAME:
            return kerberos_credentials(loaded, name)
        jaas = for_listener(loaded, name, mechanism).sasl_jaas_config
        text = None if jaas is None else jaas.reveal()
        try:
            return credentials_from(mechanism, text, self._random)
        except (BadCredentials, BadJaas) as error:
            raise ConfigError([Problem(jaas_key(name, mechanism), None, str(error))]) from error


def _find_listener(name: str, layers: Layers) -> Listener | None:
    """Return a listener of this name in any case; None if there is none, or they contradict."""
    try:
        listeners = listeners_of(layers)
    except ConfigError:
        return None
    return next((each for each in listeners.all if each.name.lower() == name.lower()), None)


def _altered(listener: str, layers: Layers, keys: frozenset[str]) -> Texts:
    """Return the settings of a listener that were altered, among ``keys``."""
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    return {
        name: text
        for name, text in layers.dynamic_broker.items()
        if name.startswith(prefix)
        and (key := base_of_listener_key(name)) is not None
        and key.name in keys
    }


def _bearer(validator: Validator | None) -> Exchange:
    assert validator is not None, "OAUTHBEARER is enabled only with a validator"
    return OAuthBearerExchange(validator)
