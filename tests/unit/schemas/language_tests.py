"""What every schema language must keep. The tests of a language inherit these."""

import json
from typing import ClassVar

import pytest

from ottla.schemas.contract import (
    EntityKind,
    InvalidSchema,
    ParsedSchema,
    SchemaEntity,
    SchemaType,
)
from ottla.schemas.languages import differences, parse


class LanguageTests:
    """Subclasses set the samples; pytest collects only subclasses."""

    schema_type: SchemaType
    # Valid schemas without references, the same schema laid out differently, and another schema.
    samples: ClassVar[list[str]]
    sample: str
    same_sample: str
    sample_canonical: str
    other_sample: str
    normalised_pair: tuple[str, str]
    invalid: ClassVar[list[str]]
    # A schema that refers to another one, its references, and the same with a broken reference.
    referring: str
    references: ClassVar[dict[str, str]]
    tagged_entity: SchemaEntity

    def parse(self, text: str, references: dict[str, str] | None = None) -> ParsedSchema:
        return parse(self.schema_type, text, references, validate=True)

    def test_samples_are_valid_and_compatible_with_themselves(self) -> None:
        for text in self.samples:
            schema = self.parse(text)
            assert schema.text == text
            assert schema.schema_type is self.schema_type
            assert differences(schema, schema) == []
            assert differences(self.parse(schema.canonical), schema) == []

    def test_canonical_text_is_the_same_for_the_same_schema(self) -> None:
        assert self.parse(self.sample).canonical == self.sample_canonical
        assert self.parse(self.same_sample).canonical == self.sample_canonical
        assert self.parse(self.other_sample).canonical != self.sample_canonical

    def test_canonical_text_of_a_canonical_text_is_itself(self) -> None:
        for text in self.samples:
            canonical = self.parse(text).canonical
            assert self.parse(canonical).canonical == canonical

    def test_normalised_schemas_are_equal_if_only_the_order_differs(self) -> None:
        one, other = map(self.parse, self.normalised_pair)
        assert one.canonical != other.canonical
        assert one.normalised().canonical == other.normalised().canonical

    def test_normalising_twice_changes_nothing(self) -> None:
        for text in self.samples:
            schema = self.parse(text).normalised()
            assert self.parse(schema.canonical).canonical == schema.canonical
            assert schema.normalised().canonical == schema.canonical
            assert differences(schema, self.parse(text)) == []

    def test_invalid_texts_are_rejected_with_a_message(self) -> None:
        for text in self.invalid:
            with pytest.raises(InvalidSchema) as error:
                self.parse(text)
            assert len(str(error.value)) > 10, text
            assert len(str(error.value)) < 1_000, text

    def test_a_missing_reference_is_rejected(self) -> None:
        with pytest.raises(InvalidSchema):
            self.parse(self.referring)

    def test_references_are_resolved(self) -> None:
        schema = self.parse(self.referring, self.references)
        assert schema.references == self.references
        assert differences(schema, schema) == []
        again = self.parse(schema.canonical, self.references)
        assert again.canonical == schema.canonical
        assert self.parse(schema.normalised().canonical, self.references)

    def test_unknown_formats_give_the_canonical_text(self) -> None:
        schema = self.parse(self.sample)
        assert schema.formatted("") == schema.formatted("no such format") == schema.canonical

    def test_tags_are_added_read_and_removed(self) -> None:
        schema = self.parse(self.sample)
        assert schema.tags == {}
        tags = {self.tagged_entity: frozenset({"PII", "SECRET"})}
        tagged = schema.with_tags(tags, {})
        assert self.parse(tagged.canonical).tags == tags
        assert schema.tags == {}, "the schema itself is not changed"
        less = tagged.with_tags({}, {self.tagged_entity: frozenset({"SECRET"})})
        assert less.tags == {self.tagged_entity: frozenset({"PII"})}
        none = less.with_tags({}, {self.tagged_entity: frozenset({"PII"})})
        assert none.tags == {}

    def test_tags_of_an_unknown_path_are_rejected(self) -> None:
        entity = SchemaEntity.of("no.such.path", EntityKind.FIELD)
        with pytest.raises(InvalidSchema, match=r"no\.such\.path"):
            self.parse(self.sample).with_tags({entity: frozenset({"X"})}, {})

    def test_a_schema_of_another_language_is_incompatible(self) -> None:
        other = SchemaType.JSON if self.schema_type is SchemaType.AVRO else SchemaType.AVRO
        schema = parse(other, json.dumps({"type": "string"}))
        (difference,) = differences(self.parse(self.sample), schema)
        assert str(difference) == "Incompatible because of different schema type"

    def test_messages_name_the_reader_and_the_writer(self) -> None:
        new, old = self.parse(self.sample), self.parse(self.other_sample)
        reported = differences(new, old)
        assert reported
        for difference in reported:
            assert str(difference) == difference.message("new", "old")
            assert difference.rule in str(difference)
            assert difference.path in str(difference)
            assert "%s" not in str(difference)
            assert "old schema" in difference.message("old", "new")
