"""Names that clients choose may have 32 KiB: caches with a bound on their entries keep none."""

import tracemalloc
from collections.abc import Callable

import pytest
from immutables import Map
from msgspec.structs import replace

from ottla.api.security.access_decisions import AccessDecisions
from ottla.api.surface.routes import Caller
from ottla.controller.mutation_quotas import MutationQuotas
from ottla.coordinators.groups.recent_events import EventKind, Note, noted
from ottla.coordinators.topics import partition_for
from ottla.metadata.image import EMPTY
from ottla.metadata.image import ClientQuotas as QuotaImage
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.types import Millis
from ottla.quotas.client_quotas import ClientQuotas, QuotaKind
from ottla.runtime.ports import Address
from ottla.security.acl import AclOperation, ResourceType, Subject
from ottla.security.authorizer import AclAuthorizer

NAMES = 80
NAME_BYTES = 32_000
GROWTH_BYTES_MAX = 1_000_000
ALICE = Caller("User:alice", "c", Address("10.0.0.1", 5), "PLAINTEXT")


def authorizer() -> Callable[[str], object]:
    decisions = AclAuthorizer()
    decisions.load([])
    subject = Subject("User:alice", "10.0.0.1")
    return lambda name: decisions.allows(subject, AclOperation.READ, ResourceType.GROUP, name)


def fast_path_decisions() -> Callable[[str], object]:
    decisions = AccessDecisions(lambda caller, name: True, lambda: 0)
    return lambda name: decisions.ask(ALICE, name)


def coordinator_of() -> Callable[[str], object]:
    return lambda name: partition_for(name, 50)


def events_of_a_group() -> Callable[[str], object]:
    notes: list[tuple[Note, ...]] = []

    def note(name: str) -> None:
        notes.append(noted((), Note(Millis(0), EventKind.CHANGED, f"subscribes to {name}")))

    return note


def client_quotas() -> Callable[[str], object]:
    quotas = ClientQuotas()
    quotas.update({(("client-id", None),): {QuotaKind.FETCH.value: 1000.0}})

    def use(name: str) -> None:
        assert quotas.applies("User:alice", name)
        quotas.charge(QuotaKind.FETCH, ("alice", name), 5_000, Millis(0))

    return use


def mutation_quotas() -> Callable[[str], object]:
    limits = Map({(("client-id", None),): Map({QuotaKind.MUTATION.value: 1.0})})
    image = replace(EMPTY, client_quotas=QuotaImage(limits))
    quotas = MutationQuotas()

    def use(name: str) -> None:
        charge = quotas.of(image, ("alice", name), ApiKey.CREATE_TOPICS, 7, Millis(0))
        assert charge is not None
        charge(100)

    return use


@pytest.mark.slow
@pytest.mark.parametrize(
    "made",
    [
        authorizer,
        fast_path_decisions,
        coordinator_of,
        events_of_a_group,
        client_quotas,
        mutation_quotas,
    ],
)
def test_long_names_are_not_kept(made: Callable[[], Callable[[str], object]]) -> None:
    use = made()
    tracemalloc.start()
    try:
        for number in range(NAMES):
            use(f"{number:06}" + "x" * NAME_BYTES)
        growth, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert growth < GROWTH_BYTES_MAX


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 200, 1000])
def test_partition_of_a_key_is_that_of_kafka_whatever_its_length(length: int) -> None:
    key = "".join(chr(33 + number % 90) for number in range(length))
    hashed = 0
    for character in key:
        hashed = (31 * hashed + ord(character)) & 0xFFFFFFFF
    signed = hashed - (1 << 32) if hashed >= 1 << 31 else hashed
    assert partition_for(key, 50) == abs(signed) % 50
