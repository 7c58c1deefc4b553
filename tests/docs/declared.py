"""Blocks that the pages' reader does not run: with the test that does, or why none can.

By page (or by all that begin so: `docs/runbooks/*`) and by block: `Heading [language]`, with a
number from the second of its kind on (`Heading [sh 2]`), or `[language]` for all of the page. What
begins with `tests/` is the test that runs or checks it; everything else is a reason.
"""

from __future__ import annotations

SAMPLE = "a sample of what is printed or stored"
SYNTAX = "the grammar of a URL"
CLUSTER = "needs a cluster and an image; tests/chart renders the chart in every way"
BROKER = "needs the broker and its tools; `make test-brokers` sends to a real one"
PRODUCER_DOCS = "tests/postgres/test_producer_docs.py"
DEAD = (
    "tests/postgres/test_operations_docs.py::"
    "test_the_documented_rights_suffice_to_decide_about_dead_letters_as_it_is_documented"
)
OTHER_LANGUAGES = (
    "tests/postgres/test_enqueue_docs.py::test_the_calls_from_other_languages_make_a_row"
)
PRODUCERS_ROLE = (
    "tests/postgres/test_enqueue_docs.py::test_the_role_of_the_page_may_do_what_the_page_does"
)
PUBLISHER = (
    "tests/contract/test_the_documented_example.py::"
    "test_the_documented_publisher_passes_its_documented_tests"
)

DECLARED: dict[str, dict[str, str]] = {
    "README.md": {"The walk [text]": "a drawing", "On Kubernetes [sh]": CLUSTER},
    "docs/concepts.md": {"The walk [text]": "a drawing"},
    "docs/demo.md": {"The demo [sh]": "tests/postgres/test_demo.py"},
    "docs/formats.md": {
        "debezium [properties]": "settings of Kafka Connect, for those who come from there",
        "CloudEvents [json]": SAMPLE,
        "Examples [sh]": "writes the golden files that tests/unit/test_wire_golden.py reads",
    },
    "docs/kafka.md": {"Start [sh]": BROKER, "The URL [text]": SYNTAX},
    "docs/kubernetes.md": {"[sh]": CLUSTER},
    "docs/metrics.md": {"Of the exporter [sh]": "tests/postgres/test_exporter.py"},
    "docs/monitoring.md": {
        "Loading the rules [sh]": "needs promtool; tests/monitoring reads the rules",
        "Limits [sh]": "tests/monitoring/test_render.py",
    },
    "docs/nats.md": {"Start [sh]": BROKER, "The URL [text]": SYNTAX},
    "docs/operations.md": {
        "With Flyway, Alembic, Django or psql [sh]": "tests/postgres/test_cli_migrate.py",
        "The doctor [text]": SAMPLE,
        "The xmin horizon [text]": SAMPLE,
        "What died, and why [sh]": DEAD,
        "Delivering them after all [sh]": DEAD,
        "Delivering them after all [sh 2]": DEAD,
        "Doing without them [sh]": DEAD,
        "Doing without them [sh 2]": DEAD,
    },
    "docs/operator.md": {
        "[sh]": "tests/cluster/test_docs.py",
        "[yaml]": "tests/unit/operator/test_docs.py",
        "What it says [console]": "tests/unit/operator/test_docs.py",
    },
    "docs/poolers.md": {"PgBouncer, in transaction mode [text]": SAMPLE},
    "docs/ordering.md": {"Seeing and unblocking lanes [text]": SAMPLE},
    "docs/producers.md": {
        "Producers [text]": "names roles and schemas of the reader's own",
        "Rights [text]": PRODUCERS_ROLE,
        "Rights [text 2]": PRODUCERS_ROLE,
        **dict.fromkeys(("[go]", "[java]", "[js]"), OTHER_LANGUAGES),
    },
    "docs/producers-sql.md": dict.fromkeys(
        ("[go]", "[java]", "[js]"), "tests/postgres/test_producers_sql_docs.py"
    ),
    "docs/producers-asyncpg.md": {"[python]": PRODUCER_DOCS},
    "docs/producers-django.md": {"[python]": "tests/docs/test_django.py"},
    "docs/producers-fastapi.md": {"[python]": PRODUCER_DOCS},
    "docs/producers-sqlalchemy.md": {"[python]": PRODUCER_DOCS},
    "docs/publishers.md": {
        "Trying a destination [console]": "tests/postgres/test_cli_destinations.py",
        "[python]": PUBLISHER,
        "[toml]": PUBLISHER,
    },
    "docs/pubsub.md": {"Start [sh]": BROKER, "The URL [text]": SYNTAX},
    "docs/quickstart.md": {
        "Quick start [sh]": "needs Docker; everything after it is run on the tests' own server",
        "Deliver [text]": SAMPLE,
    },
    "docs/rabbitmq.md": {"Start [sh]": BROKER, "The URL [text]": SYNTAX},
    "docs/redis.md": {
        "Start [sh]": BROKER,
        "The URL [text]": SYNTAX,
        "The entry [console]": SAMPLE,
    },
    "docs/runbooks/*": {
        "[sh]": "tests/monitoring/test_runbooks.py::test_a_runbook_tells_commands_that_exist",
        "[promql]": (
            "tests/monitoring/test_runbooks.py::test_a_runbook_asks_prometheus_for_what_there_is"
        ),
        "[sql]": (
            "tests/postgres/test_runbook_sql.py::test_a_statement_of_a_runbook_runs_and_only_reads"
        ),
    },
    "docs/sns.md": {"Start [sh]": BROKER, "The URL [text]": SYNTAX},
    "docs/sqs.md": {"Start [sh]": BROKER, "The URL [text]": SYNTAX},
    "docs/tracing-example.md": {
        "[text]": "tests/telemetry_e2e/test_one_trace.py",
    },
    "docs/tracing.md": {
        "Variables [sh]": "needs Jaeger in a container",
    },
}
