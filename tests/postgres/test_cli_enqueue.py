"""``pgoutbox enqueue``: one message or a file of them, all or nothing."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from psycopg.rows import dict_row

from pgoutbox.cli.enqueue import _progress
from pgoutbox.cli.main import group
from pgoutbox.database.migrate import apply

if TYPE_CHECKING:
    from pathlib import Path

ORDER = ("--type", "order", "--aggregate-id", "7", "--event-type", "order.placed")
LINE = {"aggregate_type": "order", "aggregate_id": "7", "event_type": "placed", "payload": {}}


def enqueue(dsn: str, *words: str, stdin: str | bytes = "", **environ: str) -> Result:
    env = {"PGOUTBOX_DSN": dsn, "PGOUTBOX_DATABASE__INSECURE": "true"} | environ
    return CliRunner().invoke(group, ["enqueue", *words], env=env, input=stdin)


def rows(dsn: str) -> list[dict[str, Any]]:
    with psycopg.connect(dsn) as conn:
        return (
            conn.cursor(row_factory=dict_row).execute("SELECT * FROM outbox ORDER BY id").fetchall()
        )


def lines(*given: object) -> str:
    return "".join(f"{json.dumps(one)}\n" for one in given)


def test_one_message_is_described_by_options(dsn: str) -> None:
    result = enqueue(
        dsn,
        *ORDER,
        *("--payload", '{"total": 3}', "--destination", "orders", "--ordering-key", "k"),
        *("--dedup-key", "d", "--header", "a=1", "--header", "b=x=y", "--delay", "90"),
    )
    assert result.exit_code == 0, result.stderr
    [row] = rows(dsn)
    assert result.stdout == f"{row['message_id']}\n"
    assert (row["aggregate_type"], row["aggregate_id"], row["event_type"]) == (
        "order",
        "7",
        "order.placed",
    )
    assert row["payload"] == {"total": 3}
    assert row["headers"] == {"a": "1", "b": "x=y"}
    assert (row["destination"], row["ordering_key"], row["dedup_key"]) == ("orders", "k", "d")
    assert (row["available_at"] - row["created_at"]).total_seconds() == 90


def test_a_repeated_dedup_key_tells_the_same_id_and_inserts_nothing(dsn: str) -> None:
    words = (*ORDER, "--payload", "{}", "--dedup-key", "d", "--json")
    first, second = (enqueue(dsn, *words) for _ in range(2))
    assert json.loads(first.stdout) == json.loads(second.stdout)
    assert json.loads(first.stdout)["given"] == 1
    assert len(rows(dsn)) == 1


def test_a_payload_may_come_from_a_file_or_from_standard_input(dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text('{"from": "file"}')
    assert enqueue(dsn, *ORDER, "--payload", f"@{file}").exit_code == 0
    assert enqueue(dsn, *ORDER, "--payload", "-", stdin='{"from": "stdin"}').exit_code == 0
    assert [row["payload"]["from"] for row in rows(dsn)] == ["file", "stdin"]


NUMBERS = ["1.10", "1e400", "12345678901234567890.123456789012345678901", "-0.0"]


def payload_texts(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as conn:
        return [row[0] for row in conn.execute("SELECT payload::text FROM outbox ORDER BY id")]


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_of_payloads_keep_their_digits(dsn: str, number: str) -> None:
    said = {"in": {"payload": [1, '"}{,:']}, "n": 0}
    payload = json.dumps(said).replace(" 0}", f" {number}}}")
    rest = {name: each for name, each in LINE.items() if name != "payload"}
    names = json.dumps(rest | {"headers": {"payload": "x,:{}"}})[1:-1]
    before = f'{{ "payload" : {payload} , {names}}}\n'
    after = f'{{{names} ,"payload":0,"payload":{payload}\t}}\n'
    cell = payload.replace('"', '""')
    table = f'aggregate_type,aggregate_id,event_type,payload\norder,7,placed,"{cell}"\n'
    for words, given in (
        ((*ORDER, "--payload", payload), ""),
        ((*ORDER, "--payload", "-"), f" {payload}\n"),
        (("--file", "-"), before + after),
        (("--file", "-", "--format", "csv"), table),
    ):
        result = enqueue(dsn, *words, stdin=given)
        assert result.exit_code == 0, result.stderr
    with psycopg.connect(dsn) as conn:
        expected = conn.execute("SELECT %s::jsonb::text", [payload]).fetchone()
    assert expected is not None
    assert payload_texts(dsn) == [expected[0]] * 5
    assert number == "-0.0" or number.startswith("1e") or number in expected[0]


@pytest.mark.parametrize("bad", ["NaN", "-Infinity", '"\\u0000"', '"\\ud800"'])
def test_json_that_cannot_be_stored_is_refused_with_its_path(dsn: str, bad: str) -> None:
    one = enqueue(dsn, *ORDER, "--payload", f'{{"a": [{bad}]}}')
    line = json.dumps(LINE).replace('"payload": {}', f'"payload": {{"a": [{bad}]}}')
    many = enqueue(dsn, "--file", "-", stdin=line)
    assert (one.exit_code, many.exit_code) == (1, 1)
    assert one.stderr.startswith("pgoutbox: payload.a[0]: ")
    assert many.stderr.startswith("pgoutbox: standard input, line 1: payload.a[0]: ")
    assert not rows(dsn)


@pytest.mark.parametrize("number", ["1e131072", "-1.5e-20000", "1e" + "9" * 30])
def test_a_number_that_the_database_cannot_store_is_refused(dsn: str, number: str) -> None:
    result = enqueue(dsn, "--file", "-", stdin=json.dumps(LINE).replace("{}", f"[{number}]"))
    assert result.exit_code == 1
    assert result.stderr.startswith("pgoutbox: standard input, line 1: holds the number ")
    assert enqueue(dsn, *ORDER, "--payload", number).exit_code == 2
    assert enqueue(dsn, *ORDER, "--payload", "[1e131071, 1e-16383]").exit_code == 0


def test_the_help_says_that_repeats_are_not_told_apart(dsn: str) -> None:
    assert "repeats included" in " ".join(enqueue(dsn, "--help").stdout.split())
    twice = lines(LINE | {"dedup_key": "d"}, LINE | {"dedup_key": "d"})
    told = enqueue(dsn, "--file", "-", stdin=twice).stdout
    assert told == "enqueued 2 messages, or found them there by their dedup key\n"
    assert len(rows(dsn)) == 1


@pytest.mark.parametrize("typed", [True, False])
def test_no_bar_is_drawn_over_lines_that_a_person_types(
    monkeypatch: pytest.MonkeyPatch, *, typed: bool
) -> None:
    shown = nullcontext(print)
    monkeypatch.setattr("pgoutbox.cli.enqueue.progress", lambda _doing: shown)
    monkeypatch.setattr("pgoutbox.cli.enqueue.sys.stdin", SimpleNamespace(isatty=lambda: typed))
    assert (_progress("-") is shown) is not typed
    assert _progress("messages.jsonl") is shown


def test_a_payload_with_a_content_type_is_taken_as_it_is(dsn: str) -> None:
    words = (*ORDER, "--payload", "-", "--content-type", "application/octet-stream")
    assert enqueue(dsn, *words, stdin=b"\x00\xff").exit_code == 0
    [row] = rows(dsn)
    assert bytes(row["body"]) == b"\x00\xff"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--aggregate-type, --aggregate-id, --event-type, --payload missing, or --file"),
        ((*ORDER, "--payload", "{"), "is no JSON"),
        ((*ORDER, "--payload", "@/nowhere"), "/nowhere: No such file"),
        ((*ORDER, "--payload", "{}", "--header", "a"), "'a' is not NAME=VALUE"),
        (("--file", "/nowhere"), "does not exist"),
    ],
)
def test_a_mistake_in_the_options_is_one_of_usage(
    dsn: str, words: tuple[str, ...], says: str
) -> None:
    result = enqueue(dsn, *words)
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_message_that_is_refused_is_told_in_a_sentence(dsn: str) -> None:
    result = enqueue(dsn, *ORDER, "--payload", "{}", "--destination", "Orders!")
    assert result.exit_code == 1
    assert result.stderr.startswith("pgoutbox: destination: 'Orders!' is no name")
    assert result.stderr.endswith("; nothing was inserted\n")
    assert not rows(dsn)


def test_a_file_of_json_lines_is_inserted_in_its_order(dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "messages.jsonl"
    file.write_text(lines(*({**LINE, "payload": n} for n in range(1203))) + "\n\n")
    result = enqueue(dsn, "--file", str(file))
    assert result.stdout == "enqueued 1203 messages\n"
    assert [row["payload"] for row in rows(dsn)] == list(range(1203))


def test_options_say_what_the_lines_leave_out(dsn: str) -> None:
    given = lines({"aggregate_id": "1"}, {"aggregate_id": "2", "event_type": "order.paid"})
    words = (*ORDER, "--payload", "{}", "--file", "-", "--json")
    result = enqueue(dsn, *words, stdin=given)
    found = rows(dsn)
    assert [(row["aggregate_id"], row["event_type"]) for row in found] == [
        ("1", "order.placed"),
        ("2", "order.paid"),
    ]
    assert json.loads(result.stdout) == {
        "given": 2,
        "message_ids": [str(row["message_id"]) for row in found],
    }


def test_json_lines_may_hold_every_field(dsn: str) -> None:
    identity = "0190a8c0-0000-7000-8000-000000000001"
    due = "2040-01-02T03:04:05+02:00"
    more = {"message_id": identity, "available_at": due, "headers": {"a": "b"}}
    assert enqueue(dsn, "--file", "-", stdin=lines({**LINE, **more})).exit_code == 0
    [row] = rows(dsn)
    assert str(row["message_id"]) == identity
    assert row["available_at"].isoformat().startswith("2040-01-0")


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("{", "standard input, line 601: is no JSON"),
        ("[]", "standard input, line 601: is no JSON object"),
        (
            json.dumps({**LINE, "colour": "red"}),
            "standard input, line 601: 'colour' is no field of a message",
        ),
        (json.dumps({**LINE, "delay": "soon"}), "standard input, line 601: delay cannot be read"),
        (
            json.dumps({**LINE, "available_at": 7}),
            "standard input, line 601: available_at cannot be read",
        ),
        (
            json.dumps({**LINE, "message_id": "x"}),
            "standard input, line 601: message_id cannot be read",
        ),
        (json.dumps({**LINE, "aggregate_id": 7}), "standard input, line 601: aggregate_id: "),
        (json.dumps({**LINE, "payload": "\0"}), "standard input, line 601: payload: "),
        (
            '{"payload": 1}',
            "standard input, line 601: aggregate_type, aggregate_id, event_type missing",
        ),
    ],
)
def test_one_bad_line_is_named_and_nothing_is_inserted(dsn: str, bad: str, says: str) -> None:
    given = lines(*[LINE] * 600) + bad + "\n" + lines(LINE)
    result = enqueue(dsn, "--file", "-", stdin=given)
    assert result.exit_code == 1
    assert says in result.stderr
    assert result.stderr.endswith("; nothing was inserted\n")
    assert not rows(dsn)


def test_csv_with_a_payload_column_holds_json(dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "messages.CSV"
    file.write_bytes(
        "\ufeffaggregate_type,aggregate_id,event_type,payload,headers,delay\r\n"
        'order,1,placed,"{""a"":\r\n 1}","{""h"": ""ö""}",\r\n'
        "order,2,placed,[],,2.5\r\n".encode()
    )
    result = enqueue(dsn, "--file", str(file))
    assert result.exit_code == 0, result.stderr
    first, second = rows(dsn)
    assert (first["payload"], first["headers"]) == ({"a": 1}, {"h": "ö"})
    assert (second["payload"], second["headers"]) == ([], {})
    assert (second["available_at"] - second["created_at"]).total_seconds() == 2.5


def test_a_cell_may_be_as_large_as_a_payload(dsn: str) -> None:
    given = f"aggregate_id,text\n7,{'x' * 500_000}\n"
    words = ("--type", "order", "--event-type", "placed", "--format", "csv", "--file", "-")
    assert enqueue(dsn, *words, stdin=given).exit_code == 0
    assert len(rows(dsn)[0]["payload"]["text"]) == 500_000


def test_csv_without_a_payload_column_makes_one_of_the_rest(dsn: str) -> None:
    given = "aggregate_id,total,note\n7,12.50,\n"
    words = ("--type", "order", "--event-type", "placed", "--format", "csv", "--file", "-")
    assert enqueue(dsn, *words, stdin=given).exit_code == 0
    [row] = rows(dsn)
    assert (row["aggregate_id"], row["payload"]) == ("7", {"total": "12.50"})


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("order,7,placed,{", "standard input, line 3: payload is no JSON"),
        ("order,7,placed,{},x", "standard input, line 3: has more cells than the header row"),
        ('order,7,placed,"{}"x', "standard input, line 3: is no CSV"),
        ("order,,placed,{}", "standard input, line 3: aggregate_id missing"),
    ],
)
def test_one_bad_row_is_named_and_nothing_is_inserted(dsn: str, row: str, says: str) -> None:
    given = f"aggregate_type,aggregate_id,event_type,payload\norder,7,placed,{{}}\n{row}\n"
    result = enqueue(dsn, "--format", "csv", "--file", "-", stdin=given)
    assert result.exit_code == 1
    assert says in result.stderr
    assert not rows(dsn)


def test_a_file_that_is_not_utf_8_is_refused(dsn: str) -> None:
    result = enqueue(dsn, "--file", "-", stdin=b"\xff\xfe")
    assert result.exit_code == 1
    assert "standard input is not UTF-8" in result.stderr


def test_an_empty_file_enqueues_nothing(dsn: str) -> None:
    result = enqueue(dsn, "--file", "-", "--json")
    assert json.loads(result.stdout) == {"given": 0, "message_ids": []}


def test_the_schema_is_the_one_of_the_settings(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as conn:
        apply(conn, schema="Events")
    words = (*ORDER, "--payload", "{}")
    assert enqueue(empty_dsn, *words, PGOUTBOX_DATABASE__SCHEMA="Events").exit_code == 0
    assert enqueue(empty_dsn, *words, "--schema", "Events").exit_code == 0
    missing = enqueue(empty_dsn, *words)
    assert missing.exit_code == 1
    assert "run `pgoutbox migrate`" in missing.stderr


def test_ordered_messages_are_in_the_lane_of_their_aggregate(dsn: str) -> None:
    result = enqueue(dsn, *ORDER, "--payload", "{}", "--ordered")
    assert (result.exit_code, result.stderr) == (0, "")
    file = lines(
        LINE | {"ordered": True}, LINE | {"ordered": "false"}, LINE | {"ordering_key": "a"}
    )
    assert enqueue(dsn, "--file", "-", stdin=file).exit_code == 0
    assert [row["ordering_key"] for row in rows(dsn)] == [
        *("order/7", None, "a", "order/7"),
    ]


def test_lines_that_do_not_say_are_ordered_as_the_option_says(dsn: str) -> None:
    given = "aggregate_type,aggregate_id,event_type,payload,ordered\n"
    given += "order,1,placed,{},\norder,2,placed,{},false\n"
    words = ("--ordered", "--format", "csv", "--file", "-")
    assert enqueue(dsn, *words, stdin=given).exit_code == 0
    assert [row["ordering_key"] for row in rows(dsn)] == [None, "order/1"]


@pytest.mark.parametrize(
    ("ordered", "says"),
    [
        ("perhaps", "line 1: ordered is neither true nor false"),
        (1, "line 1: ordered is neither true nor false"),
        (True, "line 1: ordered: not together with ordering_key; leave one out; nothing was"),
    ],
)
def test_a_line_that_does_not_say_clearly_whether_it_is_ordered_is_refused(
    dsn: str, ordered: object, says: str
) -> None:
    file = lines(LINE | {"ordered": ordered, "ordering_key": "k"})
    result = enqueue(dsn, "--file", "-", stdin=file)
    assert result.exit_code == 1
    assert says in result.stderr
    assert not rows(dsn)


def test_a_file_with_more_ordering_keys_than_the_lock_table_holds_is_refused_as_a_whole(
    dsn: str,
) -> None:
    with psycopg.connect(dsn) as conn:
        (room,) = conn.execute(
            """SELECT current_setting('max_locks_per_transaction')::int
                    * current_setting('max_connections')::int"""
        ).fetchone() or (0,)
    file = lines(*(LINE | {"ordering_key": f"k{number}"} for number in range(3 * room)))
    result = enqueue(dsn, "--file", "-", stdin=file)
    assert result.exit_code == 1
    assert "nothing was inserted. Each ordering key takes a place" in result.stderr
    assert not rows(dsn)
