"""Which topics of a cluster are dead-letter topics."""

from ottla.operations.dead_letter_topics import choose_dead_letter_topics


def test_dead_letter_topics_are_known_by_name_by_setting_and_as_targets_of_tables() -> None:
    settings = {
        "orders": {"ottla.table.dead.letters": "orders-unreadable"},
        "rejected": {"errors.deadletterqueue.group.enable": "true"},
        "older": {"ottla.errors.deadletterqueue.group.enable": "true"},
        "payments": {
            "errors.deadletterqueue.group.enable": "false",
            "ottla.table.dead.letters": None,
        },
    }
    names = [*settings, "orders-unreadable", "dlq.orders", "shipments-dlt", "dlqueue", "unlisted"]
    assert choose_dead_letter_topics(names, settings) == [
        "dlq.orders",
        "older",
        "orders-unreadable",
        "rejected",
        "shipments-dlt",
    ]


def test_target_of_a_table_that_does_not_exist_yet_is_left_out() -> None:
    settings = {"orders": {"ottla.table.dead.letters": "later"}}
    assert choose_dead_letter_topics(["orders"], settings) == []
