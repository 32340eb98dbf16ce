"""The rules of the schema registry: records, state, registration, deletion, settings, paths."""

import json
import time

import msgspec
import pytest
from tests.unit.registry_harness import Registry, record_of, rejected

from ottla.registry.http_call import is_json, pick_content_type
from ottla.registry.rules import lookups
from ottla.registry.rules.deletion import (
    decide_context_deletion,
    decide_subject_deletion,
    decide_version_deletion,
)
from ottla.registry.rules.entities import (
    Metadata,
    Reference,
    RegisterRequest,
    Rule,
    RuleSet,
    StoredSchema,
    SubjectConfig,
    guid_of,
)
from ottla.registry.rules.errors import Rejection
from ottla.registry.rules.paths import parse_target
from ottla.registry.rules.records import (
    ClearSubjectRecord,
    ConfigRecord,
    ContextRecord,
    DeleteSubjectRecord,
    ModeRecord,
    NoopRecord,
    PoisonRecord,
    SchemaRecord,
    decode_record,
    encode_record,
)
from ottla.registry.rules.registration import Registration, echoed_text
from ottla.registry.rules.rule_sets import check_rule_set
from ottla.registry.rules.schema_work import Results, WorkNeeded, parse_schema, perform
from ottla.registry.rules.setting_changes import (
    decide_config_deletion,
    decide_config_update,
    decide_mode_deletion,
    decide_mode_update,
)
from ottla.registry.rules.settings import config_in_scope, mode_in_scope
from ottla.registry.rules.state import RegistryState
from ottla.registry.rules.subjects import BadContext, is_valid_subject, normalise_subject


@pytest.fixture
def registry() -> Registry:
    return Registry()


# -- records ------------------------------------------------------------------------------


def test_keys_have_the_bytes_of_confluent() -> None:
    schema = StoredSchema(subject="s", version=1, id=7, schema='"string"')
    keys = [
        encode_record(record)[0]
        for record in (
            SchemaRecord("s", 1, schema),
            ConfigRecord(None, SubjectConfig()),
            ConfigRecord("s", None),
            ModeRecord("s", "IMPORT"),
            DeleteSubjectRecord("s", 3),
            ClearSubjectRecord("s"),
            ContextRecord(".c", is_present=True),
            NoopRecord(),
        )
    ]
    assert keys == [
        b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
        b'{"keytype":"CONFIG","magic":0}',
        b'{"keytype":"CONFIG","subject":"s","magic":0}',
        b'{"keytype":"MODE","subject":"s","magic":0}',
        b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}',
        b'{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}',
        b'{"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}',
        b'{"keytype":"NOOP","magic":0}',
    ]


def test_value_of_an_avro_schema_leaves_out_empty_members() -> None:
    schema = StoredSchema(subject="s", version=1, id=7, schema='"string"')
    _, value = encode_record(SchemaRecord("s", 1, schema))
    assert json.loads(value or b"") == {
        "subject": "s",
        "version": 1,
        "id": 7,
        "schema": '"string"',
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"\xff", b"{}"),
        (b"[]", b"{}"),
        (b'{"keytype":"OTHER","magic":0}', b"{}"),
        (b'{"keytype":"SCHEMA","magic":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b"not json"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"subject":"s"}'),
        (
            b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            b'{"subject":"t","version":1,"id":1}',
        ),
        (b'{"keytype":"SCHEMA","subject":"s","version":0,"magic":1}', None),
        (b'{"keytype":"MODE","magic":0}', b"[]"),
    ],
)
def test_poison_record_is_recognised(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(PoisonRecord):
        decode_record(key, value)


def test_record_of_karapace_is_read() -> None:
    key = b'{"keytype":"SCHEMA","subject":"s","version":2,"magic":1}'
    value = (
        b'{"subject":"s","version":2,"id":4,"deleted":false,'
        b'"schema":"{\\"type\\":\\"object\\"}","schemaType":"JSON","unknown":1}'
    )
    state = RegistryState()
    record = decode_record(key, value)
    assert record is not None
    state.replay(record)
    schema = state.version("s", 2)
    assert schema is not None
    assert (schema.id, schema.schema_type, schema.guid is not None) == (4, "JSON", True)


def test_value_of_a_foreign_noop_is_ignored() -> None:
    record = decode_record(b'{"keytype":"NOOP","magic":0}', b'"anything"')
    assert record == NoopRecord()


def test_guid_depends_on_text_references_metadata_and_rules() -> None:
    reference = Reference("n", "s", 1)
    guids = {
        guid_of("a", [], None, None),
        guid_of("b", [], None, None),
        guid_of("a", [reference], None, None),
        guid_of("a", [], Metadata(), None),
        guid_of("a", [], Metadata(properties={"k": "v"}), None),
        guid_of("a", [], None, RuleSet(domain_rules=[Rule(name="r", type="CEL")])),
    }
    # Empty metadata differs from none.
    assert len(guids) == 6
    assert guid_of("a", [], None, None) == "0cc175b9-c0f1-b6a8-31c3-99e269772661"


# -- registration -------------------------------------------------------------------------


def test_same_content_has_one_id_in_all_subjects_and_one_version_per_subject(
    registry: Registry,
) -> None:
    first = registry.register("a", record_of("x"))
    again = registry.register("a", record_of("x"))
    other = registry.register("b", record_of("x"))
    assert (first["id"], first["version"]) == (again["id"], again["version"]) == (1, 1)
    assert (other["id"], other["version"]) == (1, 1)
    assert registry.register("a", record_of("x", "y"))["id"] == 2
    assert len(registry.log) == 3


def test_ids_are_counted_per_context(registry: Registry) -> None:
    registry.register("a", record_of("x"))
    reply = registry.register(":.c:a", record_of("y"))
    assert reply["id"] == 1
    assert registry.state.contexts == [".", ".c"]


def test_incompatible_schema_is_rejected_with_details(registry: Registry) -> None:
    registry.register("s", record_of("x"))
    bad = json.dumps({"type": "record", "name": "R", "fields": [{"name": "z", "type": "int"}]})
    with rejected(40901) as caught:
        registry.register("s", bad)
    assert caught.value.status == 409
    assert caught.value.body_code == 409
    assert "oldSchemaVersion: 1" in caught.value.message
    assert "compatibility: 'BACKWARD'" in caught.value.message
    registry.apply(decide_config_update(registry.state, "s", {"compatibility": "none"}))
    assert registry.register("s", bad)["version"] == 2


def test_compatibility_group_compares_within_the_group_only(registry: Registry) -> None:
    registry.apply(decide_config_update(registry.state, "s", {"compatibilityGroup": "major"}))
    registry.register("s", record_of("x"), metadata=Metadata(properties={"major": "1"}))
    incompatible = json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": "z", "type": "int"}]}
    )
    with rejected(40901):
        registry.register("s", incompatible, metadata=Metadata(properties={"major": "1"}))
    reply = registry.register("s", incompatible, metadata=Metadata(properties={"major": "2"}))
    assert reply["version"] == 2


def test_empty_and_broken_schemas_are_rejected(registry: Registry) -> None:
    with rejected(42201):
        registry.register("s", "")
    with rejected(42201):
        registry.register("s", '{"type": "no such type"}')
    with rejected(42201):
        registry.register("s", record_of("x"), schema_type="THRIFT")


def test_reference_is_resolved_and_keeps_its_target(registry: Registry) -> None:
    registry.register("base", json.dumps({"type": "record", "name": "B", "fields": []}))
    user = json.dumps({"type": "record", "name": "U", "fields": [{"name": "b", "type": "B"}]})
    registry.register("user", user, references=[Reference("B", "base", 1)])
    with rejected(42206) as caught:
        decide_version_deletion(registry.state, "base", 1, is_permanent=False)
    assert caught.value.message == (
        "One or more references exist to the schema "
        "{magic=1,keytype=SCHEMA,subject=base,version=1}."
    )
    with rejected(42206):
        decide_subject_deletion(registry.state, "base", is_permanent=False)
    with rejected(42201):
        registry.register("other", user, references=[Reference("B", "base", 9)])
    registry.apply(decide_subject_deletion(registry.state, "user", is_permanent=False))
    registry.apply(decide_subject_deletion(registry.state, "base", is_permanent=False))
    with rejected(42206):
        decide_subject_deletion(registry.state, "base", is_permanent=True)


def test_metadata_and_rules_are_inherited_and_merged_with_settings(registry: Registry) -> None:
    settings = {
        "defaultMetadata": {"properties": {"owner": "nobody", "level": "1"}},
        "overrideMetadata": {"properties": {"level": "9"}},
    }
    registry.apply(decide_config_update(registry.state, "s", settings))
    reply = registry.register("s", record_of("x"), metadata=Metadata(properties={"owner": "me"}))
    assert reply["metadata"] == {"properties": {"level": "9", "owner": "me"}}
    later = registry.register("s", record_of("x", "y"))
    assert later["metadata"] == {"properties": {"level": "9", "owner": "me"}}


def test_version_in_a_request_must_be_the_next_one(registry: Registry) -> None:
    registry.register("s", record_of("x"))
    with rejected(42201):
        registry.register("s", record_of("x", "y"), version=7)
    reply = registry.register("s", record_of("x", "y"), version=2)
    assert reply["metadata"]["properties"] == {"confluent:version": "2"}


@pytest.mark.parametrize("subject", ["", "__GLOBAL", "a\nb", ":.c:", ":*:x"])
def test_invalid_subject_is_rejected(registry: Registry, subject: str) -> None:
    with rejected(42208):
        registry.register(subject, record_of("x"))


# -- deletion -----------------------------------------------------------------------------


def test_version_is_deleted_softly_before_it_is_deleted_for_good(registry: Registry) -> None:
    registry.register("s", record_of("x"))
    with rejected(40407):
        decide_version_deletion(registry.state, "s", 1, is_permanent=True)
    assert registry.apply(decide_version_deletion(registry.state, "s", 1, is_permanent=False)) == 1
    with rejected(40406):
        decide_version_deletion(registry.state, "s", 1, is_permanent=False)
    assert registry.state.version("s", 1) is None
    assert registry.state.version("s", 1, deleted=True) is not None
    registry.apply(decide_version_deletion(registry.state, "s", 1, is_permanent=True))
    assert registry.state.version("s", 1, deleted=True) is None
    with rejected(40401):
        decide_version_deletion(registry.state, "s", 1, is_permanent=False)


def test_subject_is_deleted_softly_before_it_is_deleted_for_good(registry: Registry) -> None:
    registry.register("s", record_of("x"))
    registry.register("s", record_of("x", "y"))
    registry.apply(decide_mode_update(registry.state, "s", "READWRITE", is_forced=False))
    with rejected(40405):
        decide_subject_deletion(registry.state, "s", is_permanent=True)
    reply = registry.apply(decide_subject_deletion(registry.state, "s", is_permanent=False))
    assert reply == [1, 2]
    with rejected(40404):
        decide_subject_deletion(registry.state, "s", is_permanent=False)
    assert registry.apply(decide_subject_deletion(registry.state, "s", is_permanent=True)) == [1, 2]
    assert registry.state.modes == {}
    with rejected(40401):
        decide_subject_deletion(registry.state, "s", is_permanent=False)


def test_content_of_a_deleted_subject_gets_a_new_version_with_the_old_id(
    registry: Registry,
) -> None:
    registry.register("s", record_of("x"))
    registry.apply(decide_subject_deletion(registry.state, "s", is_permanent=False))
    again = registry.reloaded(is_compacted=True)
    assert list(again.state.subjects("s")) == []
    reply = again.register("s", record_of("x"))
    assert (reply["id"], reply["version"]) == (1, 2)
    # The deleted version with the same id is gone.
    assert [schema.version for schema in again.state.versions("s", deleted=True)] == [2]


def test_context_is_deleted_when_it_is_empty(registry: Registry) -> None:
    registry.register(":.c:s", record_of("x"))
    with rejected(42211):
        decide_context_deletion(registry.state, ":.c:")
    registry.apply(decide_subject_deletion(registry.state, ":.c:s", is_permanent=False))
    registry.apply(decide_subject_deletion(registry.state, ":.c:s", is_permanent=True))
    registry.apply(decide_context_deletion(registry.state, ":.c:"))
    assert registry.state.contexts == ["."]
    assert registry.register(":.c:s", record_of("y"))["id"] == 2


# -- modes and settings -------------------------------------------------------------------


def test_read_only_subject_refuses_every_change(registry: Registry) -> None:
    registry.register("s", record_of("x"))
    registry.apply(decide_mode_update(registry.state, "s", "readonly", is_forced=False))
    with rejected(42205) as caught:
        registry.register("s", record_of("x", "y"))
    assert caught.value.message == "Subject s in context  is in read-only mode"
    with rejected(42205):
        decide_subject_deletion(registry.state, "s", is_permanent=False)
    with rejected(42205):
        decide_config_update(registry.state, "s", {"compatibility": "FULL"})


def test_global_override_beats_the_mode_of_a_subject(registry: Registry) -> None:
    registry.apply(decide_mode_update(registry.state, "s", "READWRITE", is_forced=False))
    registry.apply(decide_mode_update(registry.state, None, "READONLY_OVERRIDE", is_forced=False))
    assert mode_in_scope(registry.state, "s") == "READONLY_OVERRIDE"


def test_import_takes_id_and_version_and_skips_compatibility(registry: Registry) -> None:
    registry.apply(decide_mode_update(registry.state, "s", "IMPORT", is_forced=False))
    reply = registry.register("s", record_of("x"), id=40, version=3)
    assert (reply["id"], reply["version"]) == (40, 3)
    with rejected(42205) as caught:
        registry.register("s", record_of("y"), id=40, version=4)
    assert "Overwrite new schema with id 40" in caught.value.message
    with rejected(42205):
        registry.register("s", record_of("z"))
    registry.apply(decide_mode_update(registry.state, "s", "READWRITE", is_forced=False))
    assert registry.register("s", record_of("x", "z"))["id"] == 41
    with rejected(42205) as caught:
        registry.register("s", record_of("x", "q"), id=50)
    assert "is not in import mode" in caught.value.message


def test_import_needs_a_subject_without_schemas_unless_forced(registry: Registry) -> None:
    registry.register("s", record_of("x"))
    with rejected(42205) as caught:
        decide_mode_update(registry.state, "s", "IMPORT", is_forced=False)
    assert caught.value.message == "Cannot import since found existing subjects"
    registry.apply(decide_mode_update(registry.state, "s", "IMPORT", is_forced=True))
    registry.apply(decide_mode_deletion(registry.state, "s"))
    registry.apply(decide_subject_deletion(registry.state, "s", is_permanent=False))
    registry.apply(decide_mode_update(registry.state, "s", "IMPORT", is_forced=False))
    assert registry.state.versions("s", deleted=True) == []


def test_settings_come_from_subject_then_context_then_registry(registry: Registry) -> None:
    def level(subject: str) -> str | None:
        return config_in_scope(registry.state, subject).compatibility_level

    assert level("s") == "BACKWARD"
    registry.apply(decide_config_update(registry.state, ":.__GLOBAL:", {"compatibility": "NONE"}))
    assert (level("s"), level(":.c:s")) == ("NONE", "NONE")
    registry.apply(decide_config_update(registry.state, None, {"compatibility": "FULL"}))
    assert (level("s"), level(":.c:s")) == ("FULL", "NONE")
    registry.apply(decide_config_update(registry.state, ":.c:", {"compatibility": "FORWARD"}))
    assert level(":.c:s") == "FORWARD"
    registry.apply(decide_config_update(registry.state, "s", {"normalize": True}))
    assert config_in_scope(registry.state, "s").normalize is True
    with rejected(40401):
        decide_config_deletion(registry.state, "t")
    registry.apply(decide_config_deletion(registry.state, "s"))
    assert config_in_scope(registry.state, "s").normalize is None


def test_unknown_level_mode_and_rule_are_rejected(registry: Registry) -> None:
    with rejected(42203):
        decide_config_update(registry.state, "s", {"compatibility": "SIDEWAYS"})
    with rejected(42204):
        decide_mode_update(registry.state, "s", "SIDEWAYS", is_forced=False)
    for rule in (
        Rule(type="CEL"),
        Rule(name="", type="CEL"),
        Rule(name="1st", type="CEL"),
        Rule(name="r"),
        Rule(name="r", type="CEL", mode="UPGRADE"),
        Rule(name="r", type="CEL", mode="WRITE", on_failure="A,B"),
        Rule(name="r" * 65, type="CEL"),
    ):
        with rejected(42210):
            check_rule_set(RuleSet(domain_rules=[rule]))
    twice = [Rule(name="r", type="CEL"), Rule(name="r", type="CEL")]
    with rejected(42210):
        check_rule_set(RuleSet(domain_rules=twice))
    check_rule_set(RuleSet(domain_rules=[Rule(name="r-1", type="CEL", mode="WRITEREAD")]))


def test_update_of_settings_keeps_other_members_and_null_removes_one(registry: Registry) -> None:
    update = {"compatibility": "FULL", "alias": "t", "unknownMember": 1}
    reply = registry.apply(decide_config_update(registry.state, "s", update))
    assert reply == {"compatibility": "FULL", "alias": "t"}
    reply = registry.apply(decide_config_update(registry.state, "s", {"alias": None}))
    assert reply == {"compatibility": "FULL"}


# -- replay -------------------------------------------------------------------------------


def test_replay_after_compaction_gives_the_same_answers(registry: Registry) -> None:
    registry.register("a", record_of("x"))
    registry.register("a", record_of("x", "y"))
    registry.register(":.c:b", record_of("x"))
    registry.apply(decide_version_deletion(registry.state, "a", 1, is_permanent=False))
    registry.apply(decide_config_update(registry.state, None, {"compatibility": "FULL"}))
    for again in (registry.reloaded(), registry.reloaded(is_compacted=True)):
        for subject in ("a", ":.c:b"):
            assert again.state.versions(subject, deleted=True) == registry.state.versions(
                subject, deleted=True
            )
        assert again.state.contexts == registry.state.contexts
        assert again.state.max_id(".") == registry.state.max_id(".")
        assert again.state.configs == registry.state.configs


# -- look-ups -----------------------------------------------------------------------------


def test_id_is_found_in_the_context_of_the_subject(registry: Registry) -> None:
    registry.register("a", record_of("x"))
    registry.register(":.c:b", record_of("y"))
    assert [schema.subject for schema in lookups.find_id(registry.state, 1)] == ["a"]
    assert [schema.subject for schema in lookups.find_id(registry.state, 1, ":.c:")] == [":.c:b"]
    assert [schema.subject for schema in lookups.find_id(registry.state, 1, "b")] == ["a"]
    assert lookups.find_id(registry.state, 9) == []


def test_alias_stands_for_another_subject(registry: Registry) -> None:
    registry.register("a", record_of("x"))
    registry.apply(decide_config_update(registry.state, "alias", {"alias": "a"}))
    assert lookups.find_version(registry.state, "alias", 1).subject == "a"


def test_unqualified_subject_is_found_in_another_context(registry: Registry) -> None:
    registry.register(":.c:b", record_of("x"))
    assert lookups.find_version(registry.state, "b", -1).subject == ":.c:b"
    with rejected(40401):
        lookups.find_version(registry.state, ":.d:b", 1)


@pytest.mark.parametrize("text", ["0", "-2", "x", "99999999999", "", "1.5", "²"])
def test_bad_version_is_rejected(text: str) -> None:
    with rejected(42202):
        lookups.parse_version(text)


def test_lists_are_cut_into_pages() -> None:
    items = list(range(10))
    assert lookups.Page(2, 3).of(items) == [2, 3, 4]
    assert lookups.Page(-1, -1).of(items, 4) == [0, 1, 2, 3]
    assert lookups.Page(0, 0).of(items) == items


# -- subjects, paths, content types -------------------------------------------------------


def test_subjects_have_one_name() -> None:
    assert normalise_subject(":.:s") == "s"
    assert normalise_subject(":.c:s") == ":.c:s"
    assert normalise_subject(":.c") == ":.c:"
    assert is_valid_subject(":.__GLOBAL:", is_setting=True)
    assert not is_valid_subject(":.__GLOBAL:s")


@pytest.mark.parametrize(
    ("path", "segments"),
    [
        ("/subjects/a%2Fb/versions", ("subjects", "a/b", "versions")),
        ("/contexts/.c/subjects/s/versions/1", ("subjects", ":.c:s", "versions", "1")),
        ("/contexts/c/subjects/s", ("subjects", ":.c:s")),
        ("/contexts/.c/config", ("config", ":.c:")),
        ("/contexts/./config", ("config",)),
        ("/contexts/.c/mode/s", ("mode", ":.c:s")),
        ("/contexts/.c", ("contexts", ":.c:")),
        ("/contexts", ("contexts",)),
        ("/contexts/.c/subjects/:.d:s", ("subjects", ":.d:s")),
        (
            "/contexts/.c/compatibility/subjects/s/versions",
            ("compatibility", "subjects", ":.c:s", "versions"),
        ),
    ],
)
def test_path_is_split_and_qualified(path: str, segments: tuple[str, ...]) -> None:
    assert parse_target(path, "").segments == segments


def test_context_of_a_path_qualifies_the_query() -> None:
    assert parse_target("/contexts/.c/schemas/ids/1", "").text("subject") == ":.c:"
    target = parse_target("/contexts/.c/subjects", "subjectPrefix=a&deleted=TRUE")
    assert target.text("subjectPrefix") == ":.c:a"
    assert target.flag("deleted")
    with pytest.raises(BadContext):
        parse_target("/contexts/a:b/subjects", "")


def test_content_type_follows_the_accept_header() -> None:
    assert pick_content_type("") == "application/vnd.schemaregistry.v1+json"
    assert pick_content_type("*/*") == "application/vnd.schemaregistry.v1+json"
    assert pick_content_type("application/json") == "application/json"
    weighted = "application/vnd.schemaregistry+json;q=0.5, application/json;q=0.9"
    assert pick_content_type(weighted) == "application/json"
    assert pick_content_type("text/html") is None
    assert pick_content_type("application/json;q=0") is None
    assert is_json("application/vnd.schemaregistry.v1+json; charset=utf-8")
    assert not is_json("text/plain")


def test_body_with_null_and_unknown_members_is_read() -> None:
    text = b'{"schema":"\\"int\\"","references":null,"metadata":null,"other":{"a":1},"version":"2"}'
    body = msgspec.json.decode(text, type=RegisterRequest, strict=False)
    assert (body.schema, body.version) == ('"int"', 2)


def test_white_space_in_a_protobuf_text_is_looked_at_once() -> None:
    """The pattern of base64 took quadratic time, on the event loop."""
    text = "message A" + " " * 200_000 + "{}"
    began = time.process_time()
    assert echoed_text(RegisterRequest(schema=text, schema_type="PROTOBUF")) is None
    assert time.process_time() - began < 1
    encoded = "Cg" + "A" * 30 + "=\n=\n"
    assert echoed_text(RegisterRequest(schema=encoded, schema_type="PROTOBUF")) == encoded


@pytest.mark.parametrize(
    "members",
    [
        {"id": 2**31},
        {"references": [{"name": "a", "subject": "b", "version": 2**40}]},
        {"references": [{"name": "a", "subject": "b", "version": -2}]},
    ],
)
def test_record_with_a_number_out_of_range_is_poison(members: dict) -> None:
    key = json.dumps({"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}).encode()
    value = {"subject": "s", "version": 1, "id": 1, "schema": '"string"', **members}
    with pytest.raises(PoisonRecord):
        decode_record(key, json.dumps(value).encode())


def test_record_with_an_odd_digest_is_replayed_with_a_computed_one() -> None:
    key = json.dumps({"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}).encode()
    value = {"subject": "s", "version": 1, "id": 1, "schema": '"string"', "md5": "ü"}
    state = RegistryState()
    record = decode_record(key, json.dumps(value).encode())
    assert record is not None
    state.replay(record)
    stored = state.version("s", 1)
    assert stored is not None and stored.guid == guid_of('"string"', (), None, None)


def test_subject_is_found_without_looking_at_all_others() -> None:
    registry = Registry()
    registry.register("known", record_of("a"))
    assert registry.state.has_subject("known") and registry.state.has_subject(":.:known")
    assert not registry.state.has_subject("unknown")
    assert registry.state.has_subject(":.:") or registry.state.has_subject(None)


def test_compatibility_with_the_latest_of_an_unknown_subject_is_given() -> None:
    """As Confluent answers: any schema may be the first. A missing number is not found."""
    registry = Registry()
    request = Registration("unknown", RegisterRequest(schema=record_of("a")))
    results = Results()
    while True:
        try:
            found = lookups.check_compatibility(registry.state, request, -1, results)
        except WorkNeeded as needed:
            for item in needed.items:
                results.add(item, perform(item, parse_schema))
        else:
            break
    assert found == []
    with pytest.raises(Rejection) as raised:
        lookups.check_compatibility(registry.state, request, 3, Results())
    assert raised.value.code == 40402
