"""Plain SQL files, applied in order under an advisory lock. Forward only."""

from __future__ import annotations

import psycopg


def apply(conn: psycopg.Connection, *, schema: str) -> None:
    """Placeholder while the runner is being written."""
    from pathlib import Path
    conn.execute(f'SET search_path = "{schema}", pg_temp'.encode())
    for path in sorted((Path(__file__).parents[3] / "migrations").glob("0*.sql")):
        conn.execute(path.read_bytes())
    conn.commit()
