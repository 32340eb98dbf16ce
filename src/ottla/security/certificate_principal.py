"""The principal of a client certificate, as a TLS listener without SASL identifies clients."""

from cryptography import x509

from ottla.security.certificates import subject_name
from ottla.security.principal import ANONYMOUS, PrincipalMapper


class CertificatePrincipal:
    """Maps certificates by ``ssl.principal.mapping.rules``."""

    def __init__(self, rules: str) -> None:
        self._mapper = PrincipalMapper(rules)

    def __call__(self, certificate: bytes | None) -> str:
        """Return the principal of a certificate in DER; None is a client without one.

        Raises:
            NoMatchingRule: the connection must be closed.
        """
        if certificate is None:
            return ANONYMOUS
        subject = subject_name(x509.load_der_x509_certificate(certificate))
        return str(self._mapper.principal(subject))
