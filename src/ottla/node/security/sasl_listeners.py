"""The SASL mechanisms of a listener, and the credentials of this node, as altered at run time.

`SaslListener` and `PeerLogin` keep the newest settings that could be used. Each login asks for
them when it begins, a re-authentication, too; open sessions stay. What a setting names, such as the
class of a login module, is data: nothing is loaded.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from ottla.config.generated import BrokerConfig
from ottla.config.key_table import LISTENER_PREFIX
from ottla.config.loading import Loaded, for_listener
from ottla.config.problems import ConfigError, Problem
from ottla.metadata.image import Image
from ottla.runtime.ports import Clock
from ottla.security.jaas import PLAIN_MODULE, SCRAM_MODULE, BadJaas, LoginModule, parse_jaas
from ottla.security.sasl import gssapi, oauthbearer, plain
from ottla.security.sasl.credentials import Credentials
from ottla.security.sasl.exchange import Exchange, Mechanisms
from ottla.security.sasl.scram import ScramMechanism
from ottla.security.sasl.session import SaslSession
from ottla.server.authenticator import Authenticator
from ottla.server.events import ServerEvents
from ottla.server.sasl_authenticator import SaslAuthenticator

SUPPORTED: Final = (
    plain.NAME,
    *(str(mechanism) for mechanism in ScramMechanism),
    oauthbearer.NAME,
    gssapi.NAME,
)
# Kafka refuses them, because they load code from an address. Here no class is loaded.
_REFUSED_MODULES: Final = frozenset(
    {
        "com.sun.security.auth.module.JndiLoginModule",
        "com.sun.security.auth.module.LdapLoginModule",
    }
)
_EXAMPLES: Final[Mapping[str, str]] = {
    plain.NAME: f'{PLAIN_MODULE} required user_alice="password";',
    oauthbearer.NAME: (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    ),
    gssapi.NAME: (
        "com.sun.security.auth.module.Krb5LoginModule required keyTab=... principal=...;"
    ),
}

MakeMechanisms = Callable[[Callable[[], Image]], Mechanisms]
"""Returns the mechanisms of a listener; SCRAM takes its users from the image."""


class SaslSettings(msgspec.Struct, frozen=True):
    """What the logins of a listener follow."""

    config: BrokerConfig
    mechanisms: MakeMechanisms


class SaslListener:
    """The logins of one listener."""

    def __init__(self, settings: SaslSettings, clock: Clock) -> None:
        self.settings = settings
        """Replace it to alter the logins that begin from now on."""
        self._clock = clock

    def authenticator(
        self, image: Callable[[], Image], events: ServerEvents
    ) -> Callable[[], Authenticator]:
        """Return what makes the authenticator of a connection."""
        mechanisms = _NewestMechanisms(self, image)

        def make() -> Authenticator:
            config = self.settings.config
            session = SaslSession(mechanisms, self._clock, config.connections_max_reauth_ms)
            return SaslAuthenticator(
                session,
                events,
                frame_bytes_max=config.sasl_server_max_receive_size,
                failure_delay_ms=config.connection_failed_authentication_delay_ms,
            )

        return make

    def mechanisms(self, image: Callable[[], Image]) -> Mechanisms:
        """Return the mechanisms, always by the newest settings."""
        return _NewestMechanisms(self, image)


class _NewestMechanisms(Mapping[str, Callable[[], Exchange]]):
    """The mechanisms of a listener's newest settings."""

    def __init__(self, listener: SaslListener, image: Callable[[], Image]) -> None:
        self._listener = listener
        self._image = image
        self._made_from = listener.settings
        self._made = listener.settings.mechanisms(image)

    def _newest(self) -> Mechanisms:
        settings = self._listener.settings
        if settings is not self._made_from:
            self._made_from, self._made = settings, settings.mechanisms(self._image)
        return self._made

    def __getitem__(self, name: str) -> Callable[[], Exchange]:
        return self._newest()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._newest())

    def __len__(self) -> int:
        return len(self._newest())


class PeerLogin:
    """How this node logs in to a listener of other nodes."""

    def __init__(self, newest: Credentials) -> None:
        self.newest = newest
        """Replace it to alter the logins that begin from now on."""

    def credentials(self) -> Credentials:
        """Return credentials that follow ``newest``."""
        return msgspec.structs.replace(self.newest, newest=lambda: self.newest)


def enabled_mechanisms(loaded: Loaded, listener: str) -> tuple[str, ...]:
    """Return the mechanisms of a listener, each of which has a login module.

    Raises:
        ConfigError: there are none, one is not supported, or one has no usable JAAS entry.
    """
    enabled = for_listener(loaded, listener).sasl_enabled_mechanisms
    unsupported = [name for name in enabled if name not in SUPPORTED]
    if unsupported or not enabled:
        rule = f"must be some of {', '.join(SUPPORTED)}"
        key = f"sasl.enabled.mechanisms of listener {listener}"
        raise ConfigError([Problem(key, ",".join(enabled), rule)])
    problems: list[Problem] = []
    for mechanism in enabled:
        try:
            login_module(loaded, listener, mechanism)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return enabled


def login_module(loaded: Loaded, listener: str, mechanism: str) -> LoginModule:
    """Return the one login module of a mechanism.

    Raises:
        ConfigError: it is missing, cannot be read, or may not be used.
    """
    text = for_listener(loaded, listener, mechanism).sasl_jaas_config
    key = jaas_key(listener, mechanism)
    if text is None:
        example = _EXAMPLES.get(mechanism, f"{SCRAM_MODULE} required;")
        rule = f"must be set, since {mechanism} is enabled there, for example to {example}"
        raise ConfigError([Problem(key, None, rule)])
    try:
        modules = parse_jaas(text.reveal())
    except BadJaas as error:
        raise ConfigError([Problem(key, None, str(error))]) from error
    if len(modules) != 1:
        rule = f"has {len(modules)} login modules; there must be one"
        raise ConfigError([Problem(key, None, rule)])
    if modules[0].name in _REFUSED_MODULES:
        raise ConfigError([Problem(key, None, f"must not use {modules[0].name}")])
    return modules[0]


def jaas_key(listener: str, mechanism: str) -> str:
    """Return the key of the login module of a mechanism on a listener."""
    return f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
