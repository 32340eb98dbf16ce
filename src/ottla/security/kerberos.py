"""Kerberos tickets through the ``gssapi`` package, which the extra ``ottla[gssapi]`` installs.

The service's key comes from a keytab, a client's ticket from a keytab or from the default
credential cache (``kinit``). The package is imported only where GSSAPI is configured.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ottla.security.jaas import LoginModule
from ottla.security.sasl.credentials import Credentials
from ottla.security.sasl.gssapi import NAME, Context, GssapiClient, GssFailed

MISSING: Final = (
    "GSSAPI needs the Python package gssapi: install it with `pip install 'ottla[gssapi]'` "
    "(it is built against libkrb5-dev)"
)


class BadKerberos(ValueError):
    """Kerberos settings that cannot be used; names keys and files, no secret."""


class KerberosLogin(msgspec.Struct, frozen=True):
    """The options of ``Krb5LoginModule`` that have a meaning here."""

    keytab: str | None = None
    principal: str | None = None
    service: str | None = None


def kerberos_login(module: LoginModule, service: str | None) -> KerberosLogin:
    """Return the login of a JAAS entry; ``sasl.kerberos.service.name`` comes before serviceName.

    Raises:
        BadKerberos: two different service names.
    """
    options: Mapping[str, str] = module.options
    named = options.get("serviceName")
    if service and named and service != named:
        raise BadKerberos(
            f"sasl.kerberos.service.name={service} and serviceName={named} in sasl.jaas.config "
            "contradict each other"
        )
    keytab = options.get("keyTab")
    uses_keytab = options.get("useKeyTab", "true" if keytab else "false").lower() == "true"
    if uses_keytab and not keytab:
        raise BadKerberos("useKeyTab=true in sasl.jaas.config needs keyTab")
    path = None if not uses_keytab or keytab is None else re.sub(r"^(FILE:|file:)", "", keytab)
    return KerberosLogin(path, options.get("principal"), service or named)


def realm_of(login: KerberosLogin) -> str:
    """Return the realm of a login's principal, else the default one of ``krb5.conf``.

    Raises:
        BadKerberos: there is neither.
    """
    if login.principal and "@" in login.principal:
        return login.principal.rpartition("@")[2]
    gssapi = _library()
    name = gssapi.Name("x", gssapi.NameType.user)
    try:
        return str(name.canonicalize(gssapi.MechType.kerberos)).rpartition("@")[2]
    except gssapi.exceptions.GSSError as error:
        raise BadKerberos(f"there is no default realm: {_reason(error)}") from error


def acceptor(login: KerberosLogin) -> Callable[[], Context]:
    """Return what begins the server's side of a login.

    Raises:
        BadKerberos: the package, the keytab or its key is missing.
    """
    if login.keytab is None or login.principal is None:
        raise BadKerberos("GSSAPI needs keyTab and principal in sasl.jaas.config")
    credentials = _credentials(login, "accept")

    def accept() -> Context:
        gssapi = _library()
        return _Context(gssapi, gssapi.SecurityContext(creds=credentials, usage="accept"))

    return accept


def ticket_credentials(login: KerberosLogin) -> Credentials:
    """Return the credentials of a client; tickets are requested at each login, on a thread.

    Raises:
        BadKerberos: the package, the keytab or the service name is missing.
    """
    if not login.service:
        raise BadKerberos("GSSAPI needs sasl.kerberos.service.name, such as kafka")
    _library()
    if login.keytab is not None:
        _check_readable(login.keytab)
    return Credentials(NAME, lambda host: GssapiClient(_initiate(login, host)), blocks=True)


def _initiate(login: KerberosLogin, host: str) -> Context:
    """Begin the client's side of a login at a host. Raises `GssFailed`."""
    gssapi = _library()
    try:
        credentials = _credentials(login, "initiate")
    except BadKerberos as error:
        raise GssFailed(str(error)) from error
    target = gssapi.Name(f"{login.service}@{host}", gssapi.NameType.hostbased_service)
    flags = gssapi.RequirementFlag
    made = gssapi.SecurityContext(
        name=target,
        creds=credentials,
        usage="initiate",
        mech=gssapi.MechType.kerberos,
        flags=flags.mutual_authentication | flags.integrity,
    )
    return _Context(gssapi, made)


def _library() -> Any:  # noqa: ANN401 - the package has no types for mypy where it is missing
    try:
        import gssapi  # imported here: an extra
    except (ImportError, OSError) as error:
        raise BadKerberos(MISSING) from error
    return gssapi


def _credentials(login: KerberosLogin, usage: str) -> Any:  # noqa: ANN401
    gssapi = _library()
    name = None
    if login.principal is not None:
        name = gssapi.Name(login.principal, gssapi.NameType.kerberos_principal)
    store = None
    if login.keytab is not None:
        _check_readable(login.keytab)
        key = "keytab" if usage == "accept" else "client_keytab"
        store = {key: f"FILE:{login.keytab}"}
        if usage == "initiate":
            store["ccache"] = f"MEMORY:{login.principal or 'ottla'}"
    try:
        return gssapi.Credentials(
            name=name, usage=usage, store=store, mechs=[gssapi.MechType.kerberos]
        )
    except gssapi.exceptions.GSSError as error:
        where = login.keytab or "the credential cache (run kinit)"
        raise BadKerberos(f"no Kerberos key or ticket in {where}: {_reason(error)}") from error


def _check_readable(keytab: str) -> None:
    try:
        with open(keytab, "rb"):
            pass
    except OSError as error:
        raise BadKerberos(f"keyTab {keytab} cannot be read: {error.strerror}") from error


def _reason(error: Exception) -> str:
    """Return the library's words on one line."""
    return " ".join(str(error).split())[:300]


class _Context:
    """`Context` of the ``gssapi`` package."""

    def __init__(self, gssapi: Any, made: Any) -> None:  # noqa: ANN401
        self._errors: type[Exception] = gssapi.exceptions.GSSError
        self._made = made

    def step(self, token: bytes | None) -> bytes | None:
        try:
            answer: bytes | None = self._made.step(token)
        except self._errors as error:
            raise GssFailed(_reason(error)) from error
        return answer

    def is_complete(self) -> bool:
        return bool(self._made.complete)

    @property
    def peer(self) -> str:
        return str(self._made.initiator_name)

    def wrap(self, data: bytes) -> bytes:
        try:
            return bytes(self._made.wrap(data, False).message)
        except self._errors as error:
            raise GssFailed(_reason(error)) from error

    def unwrap(self, data: bytes) -> bytes:
        try:
            return bytes(self._made.unwrap(data).message)
        except self._errors as error:
            raise GssFailed(_reason(error)) from error
