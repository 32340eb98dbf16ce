"""Ids of the schema registry are given once: after deletions, imports, compaction and restarts."""

import json
from random import Random

import pytest
from tests.unit.registry_harness import Registry, record_of

from ottla.registry.rules.deletion import (
    decide_subject_deletion,
    decide_version_deletion,
)
from ottla.registry.rules.errors import Rejection
from ottla.registry.rules.records import (
    NoopRecord,
    PoisonRecord,
    decode_record,
)
from ottla.registry.rules.setting_changes import (
    decide_config_update,
    decide_mode_deletion,
    decide_mode_update,
)
from ottla.registry.rules.state import RegistryState


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.mark.parametrize("is_compacted", [False, True])
def test_id_of_a_removed_schema_is_never_given_again(
    registry: Registry, is_compacted: bool
) -> None:
    registry.register("s", record_of("x"))
    registry.register("t", record_of("y"))
    registry.apply(decide_subject_deletion(registry.state, "t", is_permanent=False))
    registry.apply(decide_subject_deletion(registry.state, "t", is_permanent=True))
    assert registry.register("u", record_of("z"))["id"] == 3
    registry.apply(decide_subject_deletion(registry.state, "u", is_permanent=False))
    registry.apply(decide_subject_deletion(registry.state, "u", is_permanent=True))
    again = registry.reloaded(is_compacted=is_compacted)
    assert again.register("v", record_of("v"))["id"] == 4


@pytest.mark.parametrize("is_compacted", [False, True])
def test_id_of_a_replaced_version_is_never_given_again(
    registry: Registry, is_compacted: bool
) -> None:
    registry.register("s", record_of("x"))
    registry.register("s", record_of("x", "y"))
    registry.apply(decide_mode_update(registry.state, "s", "IMPORT", is_forced=True))
    registry.register("s", record_of("z"), id=1000, version=2)
    registry.register("s", record_of("w"), id=3, version=2)
    registry.apply(decide_mode_deletion(registry.state, "s"))
    again = registry.reloaded(is_compacted=is_compacted)
    assert again.register("t", record_of("new"))["id"] == 1001


def test_id_of_a_subject_cleared_for_an_import_is_never_given_again(registry: Registry) -> None:
    registry.register(":.c:s", record_of("x"))
    registry.apply(decide_subject_deletion(registry.state, ":.c:s", is_permanent=False))
    registry.apply(decide_mode_update(registry.state, ":.c:s", "IMPORT", is_forced=False))
    registry.apply(decide_mode_deletion(registry.state, ":.c:s"))
    again = registry.reloaded(is_compacted=True)
    assert again.register(":.c:t", record_of("y"))["id"] == 2


def test_ids_are_kept_again_after_another_registry_has_written_a_noop(registry: Registry) -> None:
    registry.register("s", record_of("x"))
    registry.register("t", record_of("y"))
    registry.apply(decide_subject_deletion(registry.state, "t", is_permanent=False))
    registry.apply(decide_subject_deletion(registry.state, "t", is_permanent=True))
    registry.log.append((b'{"keytype":"NOOP","magic":0}', None))
    registry.state.replay(NoopRecord())
    assert registry.state.has_unkept_ids
    registry.apply(decide_config_update(registry.state, "s", {"compatibility": "NONE"}))
    again = registry.reloaded(is_compacted=True)
    assert again.register("u", record_of("z"))["id"] == 3


def test_ids_that_a_foreign_registry_removed_are_kept_with_the_next_change() -> None:
    registry = Registry()
    schema = {"subject": "s", "version": 1, "id": 7, "schema": '"int"'}
    key = b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
    for value in (json.dumps(schema).encode(), None):
        registry.log.append((key, value))
    taken_over = registry.reloaded()
    taken_over.apply(decide_config_update(taken_over.state, None, {"compatibility": "NONE"}))
    again = taken_over.reloaded(is_compacted=True)
    assert again.register("s", '"long"')["id"] == 8


def test_change_that_removes_nothing_writes_no_noop(registry: Registry) -> None:
    registry.register("s", record_of("x"))
    registry.apply(decide_version_deletion(registry.state, "s", 1, is_permanent=False))
    assert b"NOOP" not in b"".join(key for key, _ in registry.log)


def test_id_of_a_version_that_cannot_be_read_is_used() -> None:
    key = b'{"keytype":"SCHEMA","subject":":.c:s","version":1,"magic":1}'
    for value in (
        b'{"subject":":.c:s","version":1,"id":9,"schema":{}}',
        b'{"subject":"other","version":2,"id":9,"schema":"x","references":7}',
    ):
        with pytest.raises(PoisonRecord) as caught:
            decode_record(key, value)
        assert caught.value.used_id == (".c", 9)
    for value in (b"{", b'{"id":-4}', b'{"id":4294967296}', b'{"id":"x"}', b"[]"):
        with pytest.raises(PoisonRecord) as caught:
            decode_record(key, value)
        assert caught.value.used_id is None
    state = RegistryState()
    state.note_used(".c", 9)
    assert (state.max_id(".c"), state.has_unkept_ids) == (9, True)


def test_noop_with_numbers_out_of_range_is_ignored() -> None:
    value = b'{"maxIds":{".":99999999999,".a":-1,".b":3}}'
    assert decode_record(b'{"keytype":"NOOP","magic":0}', value) == NoopRecord({".b": 3})


def test_lost_records_do_not_free_their_ids(registry: Registry) -> None:
    registry.register("s", record_of("x"))
    registry.register(":.c:s", record_of("x"))
    fresh = Registry()
    fresh.state.note_used_in(registry.state)
    assert fresh.register("s", record_of("y"))["id"] == 2
    assert fresh.register(":.c:s", record_of("y"))["id"] == 2


@pytest.mark.parametrize("seed", range(8))
def test_no_history_of_changes_frees_an_id(seed: int) -> None:
    """After any changes, compaction and a restart, the next id is larger than all before."""
    random, registry, largest = Random(seed), Registry(), 0
    for _ in range(200):
        subject = random.choice(["s", "t", "u"])
        text = record_of(*random.sample("abcdef", 3))
        version = random.randint(1, 4)
        is_permanent = random.random() < 0.5
        state = registry.state
        try:
            match random.randrange(8):
                case 0:
                    registry.register(subject, text)
                case 1 | 2:
                    registry.register(subject, text, id=random.randint(1, 60), version=version)
                case 3:
                    registry.apply(
                        decide_version_deletion(state, subject, version, is_permanent=is_permanent)
                    )
                case 4:
                    registry.apply(
                        decide_subject_deletion(state, subject, is_permanent=is_permanent)
                    )
                case 5:
                    mode = random.choice(["IMPORT", "READWRITE"])
                    registry.apply(decide_mode_update(state, subject, mode, is_forced=True))
                case 6:
                    registry.apply(decide_mode_deletion(state, subject))
                case _:
                    registry = registry.reloaded(is_compacted=True)
        except Rejection:
            continue
        assert registry.state.max_id(".") >= largest
        largest = registry.state.max_id(".")
    assert largest > 3
