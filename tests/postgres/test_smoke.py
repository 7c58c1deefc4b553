import psycopg
def test_it_starts(conn: psycopg.Connection) -> None:
    assert conn.execute("select count(*) from outbox").fetchone() == (0,)
