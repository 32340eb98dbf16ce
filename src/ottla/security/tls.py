"""TLS contexts of listeners and clients, and their replacement while connections are open.

A context is made of settings and files. `TlsContexts` keeps the newest one that could be made: a
handshake takes the context of that moment, and a reload that fails leaves the old one in force.

Private keys pass through an anonymous file in memory, since OpenSSL's Python interface reads keys
only from files; nothing is written to disk.
"""

import os
import ssl
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ottla.runtime.system_calls import readable_copy
from ottla.security.tls_alerts import ServerContext
from ottla.security.tls_settings import HTTPS, PROTOCOLS, REQUESTED, REQUIRED, BadTls, TlsSettings

if TYPE_CHECKING:
    from cryptography import x509

    from ottla.security.key_stores import KeyMaterial

    CheckChange = Callable[[x509.Certificate | None, x509.Certificate | None], None]

_VERSIONS: Final[Mapping[str, ssl.TLSVersion]] = MappingProxyType(
    {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
)
# Suites of TLS 1.3: always on where the version is, and not among those that OpenSSL lets one set.
_TLS_13_SUITES: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
# The names of Java and of the standards -> those of OpenSSL.
_SUITES: Final[Mapping[str, str]] = MappingProxyType(
    {
        f"TLS_{kind}_WITH_{java}": f"{kind.replace('_', '-')}-{name}"
        for kind in ("ECDHE_RSA", "ECDHE_ECDSA", "DHE_RSA")
        for java, name in (
            ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
            ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
            ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
            ("AES_128_CBC_SHA256", "AES128-SHA256"),
            ("AES_256_CBC_SHA384", "AES256-SHA384"),
            ("AES_128_CBC_SHA", "AES128-SHA"),
            ("AES_256_CBC_SHA", "AES256-SHA"),
        )
    }
)


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of a listener.

    Raises:
        BadTls: the settings or files cannot be used.
    """
    # The library for certificates takes long to import, and most clients do not use TLS.
    from ottla.security.key_stores import read_key_store, read_trust_store

    material = read_key_store(settings.key_store)
    if material is None:
        raise BadTls(
            "a TLS listener needs a certificate: set ssl.keystore.location, or ssl.keystore.key "
            "and ssl.keystore.certificate.chain"
        )
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    _configure(context, settings, material)
    # Clients may neither renegotiate nor compress.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    trusted = read_trust_store(settings.trust_store)
    if settings.client_auth in (REQUIRED, REQUESTED):
        if trusted is None:
            raise BadTls(f"ssl.client.auth={settings.client_auth} needs a trust store")
        is_required = settings.client_auth == REQUIRED
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
        # Certificates are verified when a session begins, so no session is resumed by a ticket.
        # The cache of TLS 1.2 cannot be turned off here: see `ServerContext`.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    if trusted is not None:
        _trust(context, trusted)
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of a client, or of a broker that connects to another.

    Without a trust store the system's certificate authorities are trusted. An empty endpoint
    identification algorithm turns the check of the host name off, as in Kafka.

    Raises:
        BadTls: the settings or files cannot be used.
    """
    # The library for certificates takes long to import, and most clients do not use TLS.
    from ottla.security.key_stores import read_key_store, read_trust_store

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.endpoint_identification.lower() == HTTPS
    _configure(context, settings, read_key_store(settings.key_store))
    trusted = read_trust_store(settings.trust_store)
    if trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _trust(context, trusted)
    return context


def _configure(
    context: ssl.SSLContext, settings: TlsSettings, material: "KeyMaterial | None"
) -> None:
    unknown = [name for name in settings.protocols if name not in _VERSIONS]
    if unknown or not settings.protocols:
        raise BadTls(f"ssl.enabled.protocols: {unknown} is not among {', '.join(PROTOCOLS)}")
    versions = sorted(_VERSIONS[name] for name in settings.protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    if settings.cipher_suites:
        _set_ciphers(context, settings.cipher_suites)
    if material is not None:
        with (
            readable_copy(material.chain) as chain,
            readable_copy(material.key) as key,
        ):
            try:
                context.load_cert_chain(chain, key)
            except ssl.SSLError as error:
                raise BadTls(
                    f"the private key and the certificate do not fit: {error.reason}"
                ) from error


def _set_ciphers(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in _SUITES and name not in _TLS_13_SUITES]
    if unknown:
        raise BadTls(f"ssl.cipher.suites: {', '.join(unknown)} is not supported")
    chosen = [_SUITES[name] for name in names if name in _SUITES]
    if not chosen:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    try:
        context.set_ciphers(":".join(chosen))
    except ssl.SSLError as error:
        raise BadTls(f"ssl.cipher.suites: none of {', '.join(names)} is available") from error


def _trust(context: ssl.SSLContext, certificates: bytes) -> None:
    """Trust each of the certificates, as Java does: an authority below the root, or a node's own.

    Without the flag OpenSSL trusts roots alone, and of several self-signed certificates with one
    name only the first.
    """
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=certificates.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise BadTls(f"the trust store cannot be used: {error}") from error


class TlsContexts:
    """The context in force, replaced by `reload` when files or settings have changed."""

    def __init__(
        self,
        settings: TlsSettings,
        make: Callable[[TlsSettings], ssl.SSLContext],
        check: "CheckChange | None" = None,
    ) -> None:
        """Make the first context. Raises `BadTls`; ``check`` is for the certificates after it."""
        self._make = make
        self._check = check
        self._settings = settings
        self._stamp = _stamp_of(settings)
        self._context = make(settings)
        self.certificate = None if check is None else _certificate_of(settings)
        """The node's own certificate in force, if changes of it are checked."""

    def get(self) -> ssl.SSLContext:
        """Return the newest context; ask for it at every handshake."""
        return self._context

    @property
    def settings(self) -> TlsSettings:
        """The settings in force."""
        return self._settings

    def has_changed_files(self) -> bool:
        """Say whether a file is not what it was when the context was made, or last tried."""
        return _stamp_of(self._settings) != self._stamp

    def reload(self, settings: TlsSettings | None = None) -> None:
        """Make the context anew, from other settings where given.

        Raises:
            BadTls: the old context stays in force.
        """
        wanted = settings or self._settings
        # A bad file is tried again when it changes, not at every look.
        self._stamp = _stamp_of(wanted)
        context, certificate = self._make(wanted), None
        if self._check is not None:
            certificate = _certificate_of(wanted)
            self._check(self.certificate, certificate)
        self._context, self._settings, self.certificate = context, wanted, certificate


def _certificate_of(settings: TlsSettings) -> "x509.Certificate | None":
    """Return the node's own certificate. Raises `BadTls`."""
    from ottla.security.key_stores import read_key_store

    material = read_key_store(settings.key_store)
    return None if material is None else material.leaf


def _stamp_of(settings: TlsSettings) -> tuple[tuple[str, int, int, int] | str, ...]:
    """Return what tells a file from an older one of the same name."""
    stamps: list[tuple[str, int, int, int] | str] = []
    for path in settings.files:
        try:
            found = os.stat(path)
        except OSError as error:
            stamps.append(f"{path}: {error.strerror}")
        else:
            stamps.append((path, found.st_mtime_ns, found.st_size, found.st_ino))
    return tuple(stamps)
