"""The address at which a broker reaches its own cluster for remote log metadata. Pure."""

from ottla.runtime.ports import Address

_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound


def client_address(
    explicit: Address | None, advertised: Address | None, bound: Address, *, is_secured: bool
) -> Address:
    """Return the address of the client.

    An explicit one wins. A secured listener is reached as clients reach it: its certificate and its
    Kerberos principal have the advertised host. Otherwise the listen address is used, with the
    loopback address in place of "all interfaces".
    """
    if explicit is not None:
        return explicit
    if is_secured and advertised is not None:
        return advertised
    return Address(_LOOPBACK.get(bound.host, bound.host), bound.port)
