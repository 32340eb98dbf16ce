"""What happens to a request on a SASL connection, by how far the login is."""

import pytest
from test_security_sasl import HandClock, begin, session, token

from ottla.protocol.api_keys import ApiKey
from ottla.server.authenticator import Treatment
from ottla.server.events import NoEvents
from ottla.server.sasl_authenticator import API_VERSIONS_MAX, SaslAuthenticator

SERVE, REFUSE, CLOSE = Treatment.SERVE, Treatment.REFUSE, Treatment.CLOSE
SESSION_MS = 5000
PASSWORD = b"\0alice\0secret"
COLUMNS = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS, ApiKey.METADATA)


class Login:
    """A connection whose login is taken to a state, and its authenticator."""

    def __init__(self) -> None:
        self._clock = HandClock()
        self._session = session(self._clock, SESSION_MS, TOKEN=object())  # type: ignore[arg-type]
        self.authenticator = SaslAuthenticator(
            self._session, NoEvents(), frame_bytes_max=1000, failure_delay_ms=0
        )

    def new(self) -> None:
        """No request was sent."""

    def under_way(self) -> None:
        begin(self._session)

    def logged_in(self) -> None:
        begin(self._session)
        token(self._session, PASSWORD)

    def under_way_again(self) -> None:
        self.logged_in()
        begin(self._session)

    def by_another_mechanism(self) -> None:
        self.logged_in()
        begin(self._session, "TOKEN")

    def expired(self) -> None:
        self.logged_in()
        self._clock.ms += SESSION_MS

    def under_way_after_expiry(self) -> None:
        self.expired()
        begin(self._session)


@pytest.mark.parametrize(
    ("state", "treatments"),
    [
        # SaslHandshake, SaslAuthenticate, ApiVersions, Metadata
        ("new", (SERVE, CLOSE, SERVE, CLOSE)),
        ("under_way", (REFUSE, SERVE, REFUSE, REFUSE)),
        ("logged_in", (SERVE, SERVE, SERVE, SERVE)),
        ("under_way_again", (REFUSE, SERVE, REFUSE, REFUSE)),
        ("by_another_mechanism", (CLOSE, SERVE, CLOSE, CLOSE)),
        ("expired", (SERVE, CLOSE, CLOSE, CLOSE)),
        ("under_way_after_expiry", (REFUSE, SERVE, REFUSE, REFUSE)),
    ],
)
def test_request_is_served_refused_or_closes_by_the_state_of_the_login(
    state: str, treatments: tuple[Treatment, ...]
) -> None:
    login = Login()
    getattr(login, state)()
    authenticator = login.authenticator
    assert tuple(map(authenticator.receive, COLUMNS)) == treatments
    assert authenticator.admits_all is (treatments == (SERVE,) * len(COLUMNS))


def test_api_versions_before_the_login_are_few_and_end_with_the_first_good_reply() -> None:
    authenticator = Login().authenticator
    for _ in range(API_VERSIONS_MAX):
        assert authenticator.receive(ApiKey.API_VERSIONS) is SERVE
    assert authenticator.receive(ApiKey.API_VERSIONS) is CLOSE
    authenticator = Login().authenticator
    authenticator.note_api_versions()
    assert authenticator.receive(ApiKey.API_VERSIONS) is CLOSE


def test_api_versions_after_the_login_are_not_counted() -> None:
    login = Login()
    login.logged_in()
    treatments = {
        login.authenticator.receive(ApiKey.API_VERSIONS) for _ in range(2 * API_VERSIONS_MAX)
    }
    assert treatments == {SERVE}
