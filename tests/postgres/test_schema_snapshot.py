"""The migrated schema, compared with the text in schema.txt. Write it anew, then read the diff:

PGOUTBOX_TEST_SNAPSHOT=write python -m pytest tests/postgres/test_schema_snapshot.py
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psycopg

SNAPSHOT = Path(__file__).with_name("schema.txt")

# No version of the server may show: NOT NULL is a constraint of its own from PostgreSQL 18 on.
PARTS = {
    "columns": b"""
        SELECT format('%s.%s %s%s%s%s%s', c.relname, a.attname,
                      format_type(a.atttypid, a.atttypmod),
                      CASE WHEN a.attnotnull THEN ' not null' END,
                      CASE WHEN l.collname <> 'default' THEN ' collate ' || l.collname END,
                      CASE WHEN a.attidentity <> '' THEN ' identity' END,
                      ' default ' || pg_get_expr(d.adbin, d.adrelid))
          FROM pg_class c
          JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          LEFT JOIN pg_collation l ON l.oid = a.attcollation
          LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
         WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'c')
         ORDER BY c.relname, a.attnum""",
    "storage": b"""
        SELECT format('%s %s', relname, array_to_string(reloptions, ' '))
          FROM pg_class WHERE relnamespace = 'public'::regnamespace AND reloptions IS NOT NULL
         ORDER BY relname""",
    "indexes": b"""
        SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY indexname""",
    "constraints": b"""
        SELECT format('%s %s: %s', coalesce(t.typname, c.conrelid::regclass::text), c.conname,
                      pg_get_constraintdef(c.oid))
          FROM pg_constraint c LEFT JOIN pg_type t ON t.oid = c.contypid
         WHERE c.connamespace = 'public'::regnamespace AND c.contype <> 'n'
         ORDER BY coalesce(t.typname, c.conrelid::regclass::text), c.conname""",
    "triggers": b"""
        SELECT pg_get_triggerdef(t.oid)
          FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
         WHERE c.relnamespace = 'public'::regnamespace AND NOT t.tgisinternal
         ORDER BY t.tgname""",
    "functions": b"""
        SELECT format(E'%s -> %s (%s%s%s)\n  arguments %s\n  settings %s\n  body sha256 %s',
                      p.proname, pg_get_function_result(p.oid), l.lanname,
                      CASE p.provolatile WHEN 'i' THEN ', immutable' WHEN 's' THEN ', stable' END,
                      CASE WHEN p.prosecdef THEN ', security definer' END,
                      pg_get_function_arguments(p.oid), array_to_string(p.proconfig, ' '),
                      CASE WHEN p.prosqlbody IS NULL
                           THEN encode(sha256(convert_to(p.prosrc, 'UTF8')), 'hex') END)
          FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
         WHERE p.pronamespace = 'public'::regnamespace
         ORDER BY p.proname""",
    "public rights": b"""
        SELECT format('%s: %s', p.proname,
                      CASE WHEN has_function_privilege('public', p.oid, 'EXECUTE')
                           THEN 'execute' ELSE 'none' END)
          FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace
         ORDER BY p.proname""",
    "comments": b"""
        SELECT format('%s%s: %s', c.relname, '.' || a.attname, d.description)
          FROM pg_description d
          JOIN pg_class c ON c.oid = d.objoid AND d.classoid = 'pg_class'::regclass
          LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.objsubid AND a.attnum > 0
         WHERE c.relnamespace = 'public'::regnamespace
         ORDER BY c.relname, d.objsubid""",
}


def described(conn: psycopg.Connection) -> str:
    sections = []
    for title, query in PARTS.items():
        lines = (line.rstrip() for (row,) in conn.execute(query) for line in row.split("\n"))
        sections.append("\n".join([f"[{title}]", *lines, ""]))
    return "\n".join(sections)


def test_the_migrated_schema_is_the_one_that_was_committed(conn: psycopg.Connection) -> None:
    found = described(conn)
    if os.environ.get("PGOUTBOX_TEST_SNAPSHOT") == "write":
        SNAPSHOT.write_text(found, encoding="utf-8")
    assert found == SNAPSHOT.read_text(encoding="utf-8")
