"""Whether a node may replace its certificate by another one while it runs.

A certificate that has expired, or does not cover the name under which clients reach the listener,
would lock them out: it is refused, and the old one stays. A change by AlterConfigs must also keep
the subject and all names of the old one, as in Kafka (``ssl.allow.dn.changes``,
``ssl.allow.san.changes``): nodes and clients may know the node by them.
"""

import ipaddress

import msgspec
from cryptography import x509
from cryptography.x509.oid import NameOID

from ottla.protocol.types import Millis
from ottla.security.certificates import subject_name, validity_of
from ottla.security.tls_settings import BadTls


class ChangeRules(msgspec.Struct, frozen=True, kw_only=True):
    """What may change. ``host`` is the advertised name of the listener, None if there is none."""

    host: str | None = None
    allows_dn_changes: bool = True
    allows_san_changes: bool = True


def check_change(
    old: x509.Certificate | None, new: x509.Certificate | None, rules: ChangeRules, now: Millis
) -> None:
    """Check the replacement of ``old`` by ``new``. Raises `BadTls`."""
    if new is None or new == old:
        return
    if (reason := reason_against(new, rules.host, now, old)) is not None:
        raise BadTls(reason)
    if old is None:
        return
    subject, before = subject_name(new), subject_name(old)
    if not rules.allows_dn_changes and subject.lower() != before.lower():
        raise BadTls(f"the subject {subject!r} is not {before!r} (ssl.allow.dn.changes)")
    missing = _names(old) - _names(new)
    if not rules.allows_san_changes and missing:
        raise BadTls(
            f"the certificate {subject!r} does not have {', '.join(sorted(missing))} any more "
            "(ssl.allow.san.changes)"
        )


def reason_against(
    certificate: x509.Certificate,
    host: str | None,
    now: Millis,
    old: x509.Certificate | None = None,
) -> str | None:
    """Return why clients would refuse a certificate, None if they would not.

    A name that ``old`` does not cover either is not missed: clients do not check it.
    """
    subject = subject_name(certificate)
    if (against := validity_of(certificate).reason_against(now)) is not None:
        return f"the certificate {subject!r} {against}"
    if host is None or covers(certificate, host) or (old is not None and not covers(old, host)):
        return None
    return f"the certificate {subject!r} does not cover the advertised name {host}"


def covers(certificate: x509.Certificate, host: str) -> bool:
    """Say whether a certificate is one of a host: by its names, by its CN if it has none."""
    names = _names(certificate)
    if not names:
        common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        names = {str(each.value).lower() for each in common}
    try:
        return str(ipaddress.ip_address(host)) in names
    except ValueError:
        name = host.lower().rstrip(".")
        return name in names or f"*.{name.partition('.')[2]}" in names


def _names(certificate: x509.Certificate) -> set[str]:
    """Return the alternative names: DNS names in lower case, and IP addresses."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {name.lower() for name in found.get_values_for_type(x509.DNSName)} | {
        str(address) for address in found.get_values_for_type(x509.IPAddress)
    }
