"""Publication: the declared order, a failing publisher, and waiting for an image."""

import asyncio
from dataclasses import dataclass, field

import pytest

from ottla.metadata.delta import Delta
from ottla.metadata.image import EMPTY, Image, Provenance
from ottla.metadata.image_watch import ImageWatch
from ottla.metadata.publishing import ORDER, Publication
from ottla.metadata.replay import apply, replay_all
from ottla.protocol.internal.metadata_topics import TopicRecord


@dataclass
class Listener:
    name: str
    received: list[tuple[str, int, int]] = field(default_factory=list)
    fails: bool = False

    def on_image(self, delta: Delta, image: Image) -> None:
        if self.fails:
            raise ValueError("broken")
        self.received.append((self.name, image.provenance.offset, len(delta.topics)))


def step(image: Image, name: str, offset: int) -> Delta:
    return apply(image, [TopicRecord(name, name.encode() * 16)], Provenance(offset))[1]


def test_publishers_are_called_in_the_declared_order() -> None:
    received: list[tuple[str, int, int]] = []
    publication = Publication([Listener(name, received) for name in sorted(ORDER)])
    publication.start(EMPTY)
    assert [name for name, _, _ in received] == list(ORDER)


def test_publishers_come_after_those_they_depend_on() -> None:
    for earlier, later in [
        ("features", "replicas"),
        ("configs", "replicas"),
        ("acls", "replicas"),
        ("replicas", "group-coordinator"),
        ("replicas", "registration"),
    ]:
        assert ORDER.index(earlier) < ORDER.index(later)
    assert ORDER[-1] == ImageWatch.name and len(set(ORDER)) == len(ORDER)


def test_first_image_is_published_whole_and_then_changes() -> None:
    listener = Listener("acls")
    publication = Publication([listener])
    image = replay_all(EMPTY, [TopicRecord("a", b"a" * 16), TopicRecord("b", b"b" * 16)])
    publication.start(image)
    delta = step(image, "c", 5)
    publication.publish(delta)
    publication.publish(apply(delta.new, [], Provenance(6))[1])
    assert listener.received == [("acls", -1, 2), ("acls", 5, 1), ("acls", 6, 0)]
    assert publication.image is not None and publication.image.provenance.offset == 6


def test_failing_publisher_ends_the_publication() -> None:
    first, broken, last = Listener("acls"), Listener("replicas", fails=True), Listener("watch")
    publication = Publication([first, broken, last])
    with pytest.raises(ValueError, match="broken") as raised:
        publication.start(EMPTY)
    assert raised.value.__notes__ == ["publisher replicas at offset -1"]
    assert (len(first.received), last.received) == (1, [])
    broken.fails = False
    with pytest.raises(AssertionError, match="failed before"):
        publication.start(EMPTY)


def test_delta_must_follow_the_last_image() -> None:
    publication = Publication([Listener("acls")])
    with pytest.raises(AssertionError, match="does not follow"):
        publication.publish(step(EMPTY, "a", 0))
    publication.start(EMPTY)
    with pytest.raises(AssertionError, match="started twice"):
        publication.start(EMPTY)
    with pytest.raises(AssertionError, match="does not follow"):
        publication.publish(step(replay_all(EMPTY, [TopicRecord("x", b"x" * 16)]), "a", 0))


def test_publishers_must_be_known_and_unique() -> None:
    with pytest.raises(ValueError):
        Publication([Listener("unheard-of")])
    with pytest.raises(AssertionError, match="duplicate"):
        Publication([Listener("acls"), Listener("acls")])


# -- waiting -----------------------------------------------------------------------------------


def test_wait_returns_the_first_image_that_fulfils_the_condition() -> None:
    async def scene() -> None:
        watch = ImageWatch()
        assert watch.image is EMPTY
        waiting = asyncio.ensure_future(watch.wait_image(lambda i: "b" in i.topics.ids))
        await asyncio.sleep(0)
        first = step(EMPTY, "a", 0)
        watch.on_image(first, first.new)
        await asyncio.sleep(0)
        assert not waiting.done()
        second = step(first.new, "b", 1)
        watch.on_image(second, second.new)
        third = step(second.new, "c", 2)
        watch.on_image(third, third.new)
        assert await waiting is second.new

    asyncio.run(scene())


def test_cancelled_waiter_is_dropped() -> None:
    async def scene() -> None:
        watch = ImageWatch()
        asked: list[int] = []

        def condition(image: Image) -> bool:
            asked.append(image.provenance.offset)
            return False

        waiting = asyncio.ensure_future(watch.wait_image(condition))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        delta = step(EMPTY, "a", 0)
        watch.on_image(delta, delta.new)
        assert asked == [-1]

    asyncio.run(scene())
