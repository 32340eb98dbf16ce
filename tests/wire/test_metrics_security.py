"""The metrics listener with TLS and authentication."""

import base64
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import trustme
from one_node import OneNode, one_node, settings
from tests.patience import SECONDS_MAX

from ottla.config.problems import ConfigError

USER = ("ottla.metrics.user=prom", "ottla.metrics.password=pa:ss")
TOKEN = ("ottla.metrics.bearer.token=Sesame",)


def status(
    node: OneNode, path: str, authorization: str | None, ca: trustme.CA | None = None
) -> int:
    """The status of a page; with an authority, over TLS."""
    at = node.node.metrics_addr
    assert at is not None
    context = None
    if ca is not None:
        context = ssl.create_default_context(cadata=ca.cert_pem.bytes().decode())
    scheme = "http" if ca is None else "https"
    request = urllib.request.Request(f"{scheme}://localhost:{at.port}{path}")
    if authorization is not None:
        request.add_header("Authorization", authorization)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS_MAX, context=context) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            asked = "Basic" in error.headers.get("WWW-Authenticate", "")
            return error.code if asked == (error.code == 401) else -1


def basic(pair: str) -> str:
    return "Basic " + base64.b64encode(pair.encode()).decode()


@pytest.mark.parametrize(
    ("extra", "good", "bad"),
    [
        (USER, [basic("prom:pa:ss")], ["Bearer Sesame"]),
        (TOKEN, ["Bearer Sesame", "bearer Sesame"], [basic("prom:pa:ss"), "Bearer sesame"]),
        (USER + TOKEN, [basic("prom:pa:ss"), "Bearer Sesame"], ["Basic Sesame"]),
    ],
)
def test_pages_need_the_credentials_and_probes_do_not(
    tmp_path: Path, extra: tuple[str, ...], good: list[str], bad: list[str]
) -> None:
    loaded = settings(tmp_path, "ottla.metrics.listener=127.0.0.1:0", *extra)
    with one_node(loaded) as node:
        for authorization in good:
            assert status(node, "/metrics", authorization) == 200
        for refused in (*bad, None, "", "Basic", "Bearer", basic("prom:"), basic("prom:pa:s")):
            assert status(node, "/metrics", refused) == 401
            assert status(node, "/groups/x/explain", refused) == 401
        assert status(node, "/healthz", None) == status(node, "/readyz", None) == 200
        assert "Sesame" not in repr(loaded) and "pa:ss" not in repr(loaded)


def test_pages_are_served_over_tls_and_the_certificate_is_reloaded(tmp_path: Path) -> None:
    ca, other = trustme.CA(), trustme.CA()
    store = tmp_path / "metrics.pem"
    ca.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(store))
    loaded = settings(
        tmp_path,
        "ottla.metrics.listener=localhost:0",
        "ottla.metrics.ssl.enable=true",
        "listener.name.metrics.ssl.keystore.type=PEM",
        f"listener.name.metrics.ssl.keystore.location={store}",
        *TOKEN,
    )
    with one_node(loaded) as node:
        assert status(node, "/metrics", "Bearer Sesame", ca) == 200
        assert status(node, "/metrics", None, ca) == 401
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            status(node, "/healthz", None)
        other.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(store))

        async def reload() -> None:
            node.node.reload_tls()

        node.call(reload())
        assert status(node, "/metrics", "Bearer Sesame", other) == 200


@pytest.mark.parametrize(
    "extra",
    [
        ("ottla.metrics.user=prom",),
        ("ottla.metrics.password=x",),
        ("ottla.metrics.user=prom", "ottla.metrics.password="),
        ("ottla.metrics.bearer.token=",),
    ],
)
def test_incomplete_credentials_are_refused(tmp_path: Path, extra: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"ottla\.metrics"):
        settings(tmp_path, *extra)


def test_tls_without_a_certificate_is_refused(tmp_path: Path) -> None:
    loaded = settings(
        tmp_path, "ottla.metrics.listener=127.0.0.1:0", "ottla.metrics.ssl.enable=true"
    )
    with pytest.raises(ConfigError, match="certificate"), one_node(loaded):
        pass
