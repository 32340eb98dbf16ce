"""Django: the setting of the broker's address is overridden. `pip install django`."""

import django
import pytest
from confluent_kafka import Producer
from django.conf import settings
from django.http import HttpRequest, JsonResponse
from django.test import Client, override_settings
from django.urls import path

from ottla.testing import Cluster


def order(request: HttpRequest, name: str) -> JsonResponse:
    """Send a record, to the broker of the settings."""
    producer = Producer({"bootstrap.servers": settings.KAFKA_BOOTSTRAP})
    producer.produce("orders", name)
    return JsonResponse({"left": producer.flush(30)})


urlpatterns = [path("orders/<name>", order)]


@pytest.fixture(scope="session", autouse=True)
def _django() -> None:
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="test")  # noqa: S106
    django.setup()


def test_order_is_sent(ottla_node: Cluster) -> None:
    """The view sends its record."""
    with override_settings(KAFKA_BOOTSTRAP=ottla_node.bootstrap):
        assert Client().get("/orders/tea").json() == {"left": 0}
