"""Chromium walks the pages of the console, and what it does there is checked with Kafka clients."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from console_walk import CHROMIUM, PAGES, browser, filled_console
from tests.patience import SECONDS_MAX

pytestmark = pytest.mark.external

MILLIS_MAX = SECONDS_MAX * 1_000


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Any, Any, Any]]:
    pytest.importorskip("playwright", reason="pip install playwright")
    if not CHROMIUM.exists():
        pytest.skip("apt install chromium")
    with filled_console() as (cluster, console), browser() as context:
        context.set_default_timeout(MILLIS_MAX)
        yield cluster, console, context


@pytest.fixture
def page(place: tuple[Any, Any, Any]) -> Iterator[Any]:
    """A page; errors in its console, CSP violations among them, fail the test."""
    page = place[2].new_page()
    complaints: list[str] = []
    page.on(
        "console",
        lambda message: complaints.append(message.text) if message.type == "error" else None,
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    yield page
    page.close()
    assert complaints == []


@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_fits_and_has_no_errors(
    place: tuple[Any, Any, Any], page: Any, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    for name, path in PAGES.items():
        page.goto(place[1].url + path)
        assert page.locator("h1").first.is_visible(), name
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        assert page.evaluate("document.querySelectorAll('main script, main img').length") == 0


def test_topic_is_created_in_the_page_and_deleted_by_its_typed_name(
    place: tuple[Any, Any, Any], page: Any
) -> None:
    cluster, console, _ = place
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    page.goto(console.url + "/topics")
    page.fill("#create input[name=name]", "from-the-page")
    page.fill("#create input[name=partitions]", "3")
    page.click("#create button")
    page.wait_for_url("**/topics/from-the-page*")
    assert "was created" in page.inner_text(".notice")
    topic = admin.list_topics("from-the-page", timeout=SECONDS_MAX).topics["from-the-page"]
    assert len(topic.partitions) == 3
    page.click("summary:has-text('Delete topic')")
    form = page.locator("form[action$='/delete']")
    form.locator("input[name=confirm]").fill("other")
    form.locator("button").click()
    assert page.url.partition("?")[0].endswith("/from-the-page")  # the form is not sent
    form.locator("input[name=confirm]").fill("from-the-page")
    form.locator("button").click()
    page.wait_for_url("**/topics?notice=*")
    assert "from-the-page" not in admin.list_topics(timeout=SECONDS_MAX).topics


def test_message_is_sent_in_the_page_and_arrives_live(
    place: tuple[Any, Any, Any], page: Any
) -> None:
    cluster, console, _ = place
    page.goto(console.url + "/topics/greetings/messages")
    page.click("button[data-tail]")
    page.wait_for_selector("#tail-note:has-text('Live')")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce("greetings", b"<img src=x onerror=alert(1)> arrived")
    assert producer.flush(SECONDS_MAX) == 0
    page.wait_for_selector("#records tr.new:has-text('arrived')")
    assert page.locator("#records img").count() == 0
    page.fill("#produce textarea[name=value]", "sent by the page")
    page.click("#produce button")
    page.wait_for_url("**/messages/0/*")
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "walk"})
    offset = int(page.url.partition("?")[0].rpartition("/")[2])
    consumer.assign([TopicPartition("greetings", 0, offset)])
    message = consumer.poll(SECONDS_MAX)
    consumer.close()
    assert message.value() == b"sent by the page"


def test_search_and_filter_update_the_page(place: tuple[Any, Any, Any], page: Any) -> None:
    console = place[1]
    page.goto(console.url + "/searches?topic=orders")
    page.fill("input[name=json]", "$.id == 123")
    page.click("main form button")
    page.wait_for_selector("#search:has-text('600 of 600')")
    assert page.locator("#search tbody tr").count() == 1
    page.goto(console.url + "/topics")
    page.keyboard.press("/")
    page.keyboard.type("dlq")
    page.wait_for_url("**/topics?filter=dlq*")
    page.wait_for_function("document.querySelectorAll('#list tbody tr').length === 1")


def test_offsets_are_reset_after_a_preview(place: tuple[Any, Any, Any], page: Any) -> None:
    cluster, console, _ = place
    page.goto(console.url + "/groups/billing")
    page.select_option("select[name=to]", "earliest")
    page.click("form[action$='/reset'] button")
    page.click("button:has-text('Set these offsets')")
    page.wait_for_selector(".notice:has-text('were set')")
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "billing"})
    (offset,) = consumer.committed([TopicPartition("orders", 3)], SECONDS_MAX)
    consumer.close()
    assert offset.offset == 0


def test_theme_is_switched_and_kept(place: tuple[Any, Any, Any], page: Any) -> None:
    console = place[1]
    page.emulate_media(color_scheme="light")
    page.goto(console.url + "/brokers")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    page.goto(console.url + "/topics")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.click("#theme")
