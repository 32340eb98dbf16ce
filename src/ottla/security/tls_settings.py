"""The ``ssl.*`` settings of a listener or a client, as values."""

from collections.abc import Mapping
from typing import Final

import msgspec

from ottla.config.generated import BrokerConfig
from ottla.config.values import Password

NONE: Final = "none"
REQUESTED: Final = "requested"
REQUIRED: Final = "required"
HTTPS: Final = "https"
PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
PREFIX: Final = "ssl."


class BadTls(ValueError):
    """TLS settings or files that cannot be used. The message names key and file, no secret."""


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where keys or trusted certificates are: a file, or PEM in the settings themselves.

    With ``key_location``, ``location`` has the certificate chain only, and this file the key.
    """

    type: str = "JKS"
    location: str | None = None
    key_location: str | None = None
    password: str | None = None
    key: bytes | None = None
    key_password: str | None = None
    certificates: bytes | None = None

    def __repr__(self) -> str:
        return f"StoreSettings(type={self.type!r}, location={self.location!r}, hidden)"


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All that a TLS context is made of."""

    key_store: StoreSettings = StoreSettings()
    trust_store: StoreSettings = StoreSettings()
    client_auth: str = NONE
    protocols: tuple[str, ...] = PROTOCOLS
    cipher_suites: tuple[str, ...] = ()
    endpoint_identification: str = HTTPS

    @property
    def files(self) -> tuple[str, ...]:
        """The files that a context is made of; when one changes, the context is made anew."""
        keys, trusted = self.key_store, self.trust_store
        found = (keys.location, keys.key_location, trusted.location)
        return tuple(path for path in found if path is not None)


def tls_settings_of(config: BrokerConfig) -> TlsSettings:
    """Return the settings of a listener; ``config`` is as that listener sees it."""
    return TlsSettings(
        key_store=StoreSettings(
            type=config.ssl_keystore_type,
            location=config.ssl_keystore_location,
            password=_revealed(config.ssl_keystore_password),
            key=_bytes(_revealed(config.ssl_keystore_key)),
            key_password=_revealed(config.ssl_key_password),
            certificates=_bytes(_revealed(config.ssl_keystore_certificate_chain)),
        ),
        trust_store=StoreSettings(
            type=config.ssl_truststore_type,
            location=config.ssl_truststore_location,
            password=_revealed(config.ssl_truststore_password),
            certificates=_bytes(_revealed(config.ssl_truststore_certificates)),
        ),
        client_auth=config.ssl_client_auth,
        protocols=config.ssl_enabled_protocols,
        cipher_suites=config.ssl_cipher_suites,
        endpoint_identification=config.ssl_endpoint_identification_algorithm,
    )


def client_tls_settings(properties: Mapping[str, str]) -> TlsSettings:
    """Return the settings of a client from Kafka's client properties (``ssl.*``).

    ``ssl.certificate.location`` and ``ssl.key.location`` are librdkafka's: a chain and its key, in
    two files. So is the identification algorithm ``none``, which is empty in Kafka.
    """

    def get(name: str) -> str | None:
        return properties.get(PREFIX + name) or None

    def items(name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in (get(name) or "").split(",") if part.strip())

    identification = properties.get(f"{PREFIX}endpoint.identification.algorithm", HTTPS)
    return TlsSettings(
        key_store=StoreSettings(
            type=get("keystore.type") or "JKS",
            location=get("certificate.location") or get("keystore.location"),
            key_location=get("key.location"),
            password=get("keystore.password"),
            key=_bytes(get("keystore.key")),
            key_password=get("key.password"),
            certificates=_bytes(get("keystore.certificate.chain")),
        ),
        trust_store=StoreSettings(
            type=get("truststore.type") or "JKS",
            location=get("truststore.location"),
            password=get("truststore.password"),
            certificates=_bytes(get("truststore.certificates")),
        ),
        protocols=items("enabled.protocols") or PROTOCOLS,
        cipher_suites=items("cipher.suites"),
        endpoint_identification="" if identification.lower() == NONE else identification,
    )


def _revealed(secret: Password | None) -> str | None:
    return None if secret is None else secret.reveal()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
