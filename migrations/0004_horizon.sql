-- Who keeps vacuum from removing what the outbox has finished with.

-- Identities and ages, never a query's text. What can be seen from here holds back the user tables of
-- this database:
--   backend   a session's snapshot or transaction id. Of other databases only the transaction ids, since
--             every snapshot taken here reaches back to the oldest transaction that runs anywhere.
--   prepared  a prepared transaction, for the same reason of any database.
--   slot      the xmin of a replication slot. Not its catalog_xmin, which spares the catalogs only.
--   standby   what a standby without a slot asks for by hot_standby_feedback.
-- VACUUM itself and streaming by logical decoding hold back nothing (copying tables for a subscriber does),
-- and the session that asks does not count.
-- Oldest first; among equals whoever owns the transaction id comes before those whose snapshots inherited it.
-- Seconds are since the begin of the transaction, or since the slot was left (known from PostgreSQL 17
-- on, hence the detour through jsonb), and NULL where nobody knows. "hidden" says that the owner of this
-- function lacks pg_read_all_stats: then states and seconds of other roles' sessions are NULL as well.
-- { "hidden": bool, "holders": [ { kind, name, pid, role, database, application, state, transactions, seconds } ] }
CREATE FUNCTION outbox_horizon() RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
WITH holders AS (
    SELECT CASE WHEN a.datid IS NULL THEN 'standby' ELSE 'backend' END AS kind, NULL::text AS name,
           a.pid, a.usename::text AS role, a.datname::text AS database, a.application_name AS application,
           CASE WHEN a.datid IS NULL THEN w.state ELSE a.state END AS state,
           CASE WHEN a.datid IS NULL OR a.datname = current_database()
                THEN greatest(age(a.backend_xid), age(a.backend_xmin)) ELSE age(a.backend_xid) END AS transactions,
           extract(epoch FROM now() - a.xact_start)::float8 AS seconds,
           a.backend_xid IS NOT NULL AND age(a.backend_xid) >= coalesce(age(a.backend_xmin), 0) AS owned
      FROM pg_stat_activity a
      LEFT JOIN pg_stat_replication w ON w.pid = a.pid
     WHERE a.pid <> pg_backend_pid()
       AND CASE WHEN a.datid IS NULL THEN w.pid IS NOT NULL
                ELSE w.state IS NULL OR w.state NOT IN ('catchup', 'streaming') END
       AND a.leader_pid IS NULL
       AND NOT EXISTS (SELECT FROM pg_stat_progress_vacuum v WHERE v.pid = a.pid)
    UNION ALL
    SELECT 'prepared', p.gid, NULL, p.owner::text, p.database::text, NULL, NULL, age(p.transaction),
           extract(epoch FROM now() - p.prepared)::float8, true
      FROM pg_prepared_xacts p
    UNION ALL
    SELECT 'slot', s.slot_name::text, s.active_pid, NULL, s.database::text, NULL,
           CASE WHEN s.active THEN 'active' ELSE 'inactive' END, age(s.xmin),
           extract(epoch FROM now() - (to_jsonb(s) ->> 'inactive_since')::timestamptz)::float8, false
      FROM pg_replication_slots s
     WHERE s.wal_status IS DISTINCT FROM 'lost'
), oldest AS (
    SELECT h.*, row_number() OVER (ORDER BY h.transactions DESC, h.owned DESC, h.seconds DESC NULLS LAST) AS place
      FROM holders h
     WHERE h.transactions IS NOT NULL
     ORDER BY place
     LIMIT 10
)
SELECT jsonb_build_object(
    'hidden', NOT pg_has_role('pg_read_all_stats', 'USAGE'),
    'holders', coalesce((SELECT jsonb_agg(jsonb_build_object(
        'kind', o.kind, 'name', o.name, 'pid', o.pid, 'role', o.role, 'database', o.database,
        'application', o.application, 'state', o.state, 'transactions', greatest(o.transactions, 0),
        'seconds', CASE WHEN o.seconds > 0 THEN o.seconds ELSE 0 * o.seconds END) ORDER BY o.place) FROM oldest o), '[]'))
$$;
REVOKE EXECUTE ON FUNCTION outbox_horizon() FROM PUBLIC;

-- The table's settings of the first migration stand, by measurement (benchmarks/table_settings.py, figures in
-- docs/decisions.md): no update can be HOT, since every transition changes a column that a partial index
-- depends on, so a fillfactor below 100 only makes the table larger; and the server's 20 % would let dead rows
-- grow with the history of finished messages.
