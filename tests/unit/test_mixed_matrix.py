"""The table of releases in docs/migration.md, written from a report of the mixed clusters."""

from tests.mixed.matrix import BEGIN, END, cases_of, table, written

REPORT = """<testsuites><testsuite>
<testcase name="test_cluster_rolls_to_ottla_and_back[4.0.2]" time="93.4" />
<testcase name="test_ottla_broker_serves_under_kafka_controller[4.0.2]" time="9">
<failure/></testcase>
<testcase name="test_kafka_broker_serves_under_ottla_controller[4.0.2]" time="0">
<skipped/></testcase>
<testcase name="test_something_else[4.0.2]" time="1" />
</testsuite></testsuites>"""


def test_table_says_what_ran_failed_and_was_skipped() -> None:
    made = table(cases_of(REPORT), {"4.0.2": "4.0-IV3"})
    row = made.splitlines()[-1]
    assert row == "| 4.0.2 | 4.0-IV3 | yes, 93 s | **no** | not run | not run |"


def test_table_replaces_the_old_one_and_nothing_else() -> None:
    page = f"# A page\n\n{BEGIN}\nold\n{END}\n\nThe end.\n"
    assert written(page, "new") == f"# A page\n\n{BEGIN}\nnew\n{END}\n\nThe end.\n"
