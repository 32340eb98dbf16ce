"""What a feature turns off is advertised, as by Kafka, but not served."""

import pytest
from immutables import Map
from msgspec.structs import replace

from ottla.api.surface.routes import Route, Routes
from ottla.metadata.features import SHARE_VERSION
from ottla.metadata.image import EMPTY, Features, Image
from ottla.node.controller.feature_gates import NEEDS, disabled_at, newest_at
from ottla.protocol.api_keys import APIS, ApiKey, Listener


def disabled(image: Image) -> set[ApiKey]:
    is_disabled = disabled_at(lambda: image)
    return {key for key in (*NEEDS, ApiKey.FETCH) if is_disabled(key)}


def at_level(level: int) -> Image:
    levels = Features(Map({SHARE_VERSION: level} if level else {}))
    return replace(EMPTY, features=levels)


def test_share_apis_are_enabled_with_their_feature() -> None:
    assert disabled(at_level(1)) == set()


def test_share_apis_are_disabled_without_their_feature() -> None:
    assert disabled(at_level(0)) == set(NEEDS)


@pytest.mark.parametrize(("level", "newest"), [(None, 4), (29, 4), (30, 5)])
def test_versions_of_a_newer_release_are_advertised_from_its_level_on(
    level: int | None, newest: int
) -> None:
    levels = Features(Map({} if level is None else {"metadata.version": level}))
    image = replace(EMPTY, features=levels)
    routes = (
        Route(ApiKey.DESCRIBE_LOG_DIRS, lambda *_: None),
        Route(ApiKey.FETCH, lambda *_: None),
    )
    found = dict(Routes(Listener.BROKER, routes, newest=newest_at(lambda: image)))
    assert found[ApiKey.DESCRIBE_LOG_DIRS] == (1, newest)
    assert found[ApiKey.FETCH] == APIS[ApiKey.FETCH].versions
