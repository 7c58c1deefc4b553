-- Which sessions that use the outbox wait for a lock, and for whom.
--
-- Workers pass by rows that somebody has locked; a lock on the whole table (a migration, VACUUM FULL)
-- stops everybody.
--
-- Cost: no row of the outbox is read. Needs: pg_read_all_stats, to see the sessions of other roles.

SELECT w.pid, w.usename AS role, w.application_name AS application, now() - w.query_start AS waiting_for,
       w.wait_event AS kind, b.pid AS blocker, b.usename AS blocker_role, b.application_name AS blocker_application,
       b.state AS blocker_state, now() - b.xact_start AS blocker_since
  FROM pg_stat_activity w
  LEFT JOIN pg_stat_activity b ON b.pid = ANY (pg_blocking_pids(w.pid))
 WHERE w.wait_event_type = 'Lock'
   AND w.pid IN (
       SELECT l.pid FROM pg_locks l
        WHERE l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND l.relation = to_regclass('outbox'))
 ORDER BY waiting_for DESC;
