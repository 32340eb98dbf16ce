"""Reasons of incompatible schemas, in words for people."""

from ottla.cli.commands.schema_reasons import reasons_of, split_details

MESSAGES = [
    "{errorType:'TYPE_MISMATCH', description:'Type at '/a' of the new schema cannot read the "
    "type in the old schema', additionalInfo:'a reader of STRING cannot read LONG'}",
    "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'Field 'item' needs a default'}",
    "{oldSchemaVersion: 1}",
    '{oldSchema: \'{"type":"record","name":"Order"}\'}',
    "{validateFields: 'false', compatibility: 'BACKWARD'}",
]


def test_each_difference_is_a_line_and_the_old_text_is_left_out() -> None:
    assert list(reasons_of(MESSAGES)) == [
        "TYPE_MISMATCH: Type at '/a' of the new schema cannot read the type in the old schema "
        "(a reader of STRING cannot read LONG)",
        "READER_FIELD_MISSING_DEFAULT_VALUE: Field 'item' needs a default",
        "compared with version 1, compatibility BACKWARD",
    ]


def test_messages_of_another_form_are_shown_as_they_are() -> None:
    assert list(reasons_of(["Incompatible because of different schema type"])) == [
        "Incompatible because of different schema type"
    ]


def test_details_of_a_rejection_are_split() -> None:
    assert split_details(", ".join(MESSAGES)) == MESSAGES
