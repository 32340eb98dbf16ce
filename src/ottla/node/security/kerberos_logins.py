"""GSSAPI of a listener and of connections to other nodes, from settings."""

from collections.abc import Callable

from ottla.config.loading import Loaded, for_listener
from ottla.config.problems import ConfigError, Problem
from ottla.security.jaas import BadJaas, parse_jaas
from ottla.security.kerberos import (
    BadKerberos,
    KerberosLogin,
    acceptor,
    kerberos_login,
    realm_of,
    ticket_credentials,
)
from ottla.security.sasl.credentials import Credentials
from ottla.security.sasl.exchange import Exchange
from ottla.security.sasl.gssapi import NAME, GssapiExchange
from ottla.security.sasl.kerberos_rules import BadKerberosRules, KerberosRules


def build_gssapi(loaded: Loaded, listener: str) -> Callable[[], Exchange]:
    """Return what makes the exchange of a login on a listener.

    Raises:
        ConfigError: the keytab, its principal, the package or a rule cannot be used.
    """
    config = for_listener(loaded, listener, NAME)
    login = _login(loaded, listener)
    try:
        rules = KerberosRules(config.sasl_kerberos_principal_to_local_rules, realm_of(login))
        accept = acceptor(login)
    except BadKerberosRules as error:
        key = "sasl.kerberos.principal.to.local.rules"
        raise ConfigError([Problem(key, None, str(error))]) from error
    except BadKerberos as error:
        raise ConfigError([Problem(_key(listener), None, str(error))]) from error
    return lambda: GssapiExchange(accept, rules)


def kerberos_credentials(loaded: Loaded, listener: str) -> Credentials:
    """Return how this node logs in to a listener of another one.

    Raises:
        ConfigError: as `build_gssapi`, or no service name is set.
    """
    try:
        return ticket_credentials(_login(loaded, listener))
    except BadKerberos as error:
        raise ConfigError([Problem(_key(listener), None, str(error))]) from error


def _login(loaded: Loaded, listener: str) -> KerberosLogin:
    config = for_listener(loaded, listener, NAME)
    text = config.sasl_jaas_config
    if text is None:
        rule = (
            "must be set: GSSAPI, which sasl.enabled.mechanisms is unless set, needs keyTab and "
            "principal"
        )
        raise ConfigError([Problem(_key(listener), None, rule)])
    try:
        return kerberos_login(parse_jaas(text.reveal())[0], config.sasl_kerberos_service_name)
    except (BadJaas, BadKerberos) as error:
        raise ConfigError([Problem(_key(listener), None, str(error))]) from error


def _key(listener: str) -> str:
    return f"listener.name.{listener.lower()}.gssapi.sasl.jaas.config"
