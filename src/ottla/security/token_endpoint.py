"""Bearer tokens of a client, from an identity provider or a file.

With a ``https`` URL the token comes from the OAuth 2.0 client credentials grant (RFC 6749, 4.4):
one POST with the client's id and secret, and a JSON reply with ``access_token`` and
``expires_in``. It is used until little of its lifetime is left. With a ``file`` URL the file's
content is the token, read at each login. Blocking.
"""

import base64
import json
import ssl
from collections.abc import Callable
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from ottla.runtime.ports import Clock
from ottla.security.http_fetch import BadUrl, HttpRequest, check_url, fetch
from ottla.security.sasl.credentials import LoginFailed

RENEWAL_FACTOR: Final = 0.8
"""After this fraction of its lifetime a token is requested again, as in Kafka's clients."""


class TokenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask whom. Its text hides the secret."""

    url: str
    client_id: str | None = None
    client_secret: str | None = None
    scope: str | None = None
    urlencodes_header: bool = False
    """Whether id and secret are URL-encoded in the header, as RFC 6749 asks. Kafka: no."""

    def __repr__(self) -> str:
        return f"TokenRequest({urlsplit(self.url).hostname}, hidden)"


class TokenEndpoint:
    """Gives the token of a login that begins now."""

    def __init__(
        self, request: TokenRequest, clock: Clock, tls: Callable[[], ssl.SSLContext | None]
    ) -> None:
        """Check the URL. Raises `BadUrl`."""
        check_url(request.url, allows_file=True)
        self._request = request
        self._clock = clock
        self._tls = tls
        self._token: str | None = None
        self._renews_at = 0.0

    def __call__(self) -> str:
        """Return a token. Raises `LoginFailed`, without any secret in its text."""
        if self._token is None or self._clock.monotonic() >= self._renews_at:
            self._token = None
            self._token = self._fetch()
        return self._token

    def _fetch(self) -> str:
        request = self._request
        where = urlsplit(request.url).hostname or request.url
        is_file = request.url.startswith("file:")
        asked = HttpRequest(url=request.url) if is_file else _grant(request)
        try:
            data = fetch(asked, None if is_file else self._tls(), allows_file=True)
        except (OSError, BadUrl) as error:
            raise LoginFailed(f"sasl.oauthbearer.token.endpoint.url: {error}") from error
        if is_file:
            return data.decode(errors="replace").strip()
        try:
            reply = json.loads(data)
            token, lifetime_s = reply["access_token"], float(reply.get("expires_in", 0))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LoginFailed(f"{where} answered without an access_token") from error
        if not isinstance(token, str) or not token:
            raise LoginFailed(f"{where} answered without an access_token")
        self._renews_at = self._clock.monotonic() + lifetime_s * 1000 * RENEWAL_FACTOR
        return token


def _grant(request: TokenRequest) -> HttpRequest:
    user, secret = request.client_id or "", request.client_secret or ""
    if request.urlencodes_header:
        user, secret = quote(user, safe=""), quote(secret, safe="")
    form = {"grant_type": "client_credentials"}
    if request.scope:
        form["scope"] = request.scope
    return HttpRequest(
        url=request.url,
        headers={
            "Authorization": "Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode(),
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        },
        body=urlencode(form).encode(),
    )
