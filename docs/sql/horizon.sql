-- Who keeps vacuum from removing what the outbox has finished with, the oldest first.
--
-- A transaction that is old but holds back few others does no harm. What to do about each kind is in
-- docs/operations.md, "The xmin horizon".
--
-- Cost: no row of the outbox is read. Needs: EXECUTE on outbox_horizon.

SELECT h.kind, h.transactions, make_interval(secs => h.seconds) AS held_for, h.state, h.pid, h.name, h.role,
       h.database, h.application
  FROM jsonb_to_recordset(outbox_horizon() -> 'holders') AS h(
       kind text, transactions bigint, seconds float8, state text, pid integer, name text, role text,
       database text, application text)
 ORDER BY h.transactions DESC, h.seconds DESC NULLS LAST;
