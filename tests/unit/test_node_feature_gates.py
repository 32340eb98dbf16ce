"""What a feature turns off is neither advertised nor served."""

from immutables import Map
from msgspec.structs import replace

from ottla.api.routes import Route, Routes
from ottla.metadata.features import SHARE_VERSION
from ottla.metadata.image import EMPTY, Features, Image
from ottla.node.feature_gates import NEEDS, hidden_at
from ottla.protocol.api_keys import ApiKey, Listener


def advertised(image: Image) -> set[ApiKey]:
    routes = tuple(Route(key, lambda *_: None) for key in (*NEEDS, ApiKey.FETCH))
    return {key for key, _ in Routes(Listener.BROKER, routes, hidden_at(lambda: image))}


def at_level(level: int) -> Image:
    levels = Features(Map({SHARE_VERSION: level} if level else {}))
    return replace(EMPTY, features=levels)


def test_share_apis_are_advertised_with_their_feature() -> None:
    assert advertised(at_level(1)) == {*NEEDS, ApiKey.FETCH}


def test_share_apis_are_hidden_without_their_feature() -> None:
    assert advertised(at_level(0)) == {ApiKey.FETCH}
