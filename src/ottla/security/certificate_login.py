"""What a client certificate stands for: a principal, and until when.

A TLS listener without SASL names its clients by their certificates. Whether a certificate is
trusted and valid has been checked by the handshake (`ottla.security.tls_alerts.ServerContext`).

An open connection outlives its certificate, as in Kafka, unless ``connections.max.reauth.ms`` is
set: then clients must prove now and then that they may still log in, which an expired certificate
no longer does, so the connection is closed when it expires, with SASL on top of TLS, too.
"""

from collections.abc import Callable
from typing import NamedTuple

from cryptography import x509

from ottla.protocol.types import Millis
from ottla.runtime.ports import Clock
from ottla.security.certificates import BadCertificate, subject_name, validity_of
from ottla.security.principal import ANONYMOUS, CertificateRefused
from ottla.security.principal_mapping import PrincipalMapper


class CertificateLogin(NamedTuple):
    """The principal, None where SASL names it, and the monotonic time at which the login ends."""

    principal: str | None
    ends_at: Millis | None = None


LoginByCertificate = Callable[[bytes | None], CertificateLogin]
"""Returns the login of a certificate in DER; None is a client without one.

Raises:
    CertificateRefused: the connection must be closed.
"""


class CertificateLogins:
    """Maps certificates by ``ssl.principal.mapping.rules``; without rules they name nobody."""

    def __init__(self, rules: str | None, clock: Clock, *, ends_with_certificate: bool) -> None:
        """Read the rules. Raises `BadMappingRules`."""
        self._mapper = None if rules is None else PrincipalMapper(rules)
        self._clock = clock
        self._ends_with_certificate = ends_with_certificate

    def __call__(self, certificate: bytes | None) -> CertificateLogin:
        """Return the login of a certificate in DER; None is a client without one.

        Raises:
            CertificateRefused: the connection must be closed.
        """
        if certificate is None:
            return CertificateLogin(None if self._mapper is None else ANONYMOUS)
        try:
            loaded = x509.load_der_x509_certificate(certificate)
            subject, validity = subject_name(loaded), validity_of(loaded)
        except (BadCertificate, ValueError) as error:
            raise CertificateRefused(f"the certificate cannot be read: {error}") from error
        principal = None if self._mapper is None else str(self._mapper.principal(subject))
        if not self._ends_with_certificate:
            return CertificateLogin(principal)
        left_ms = validity.not_after - self._clock.now()
        return CertificateLogin(principal, Millis(self._clock.monotonic() + max(0, left_ms)))
