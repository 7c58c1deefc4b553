-- The workers, by their last heartbeat; they write one every ten seconds.
--
-- One that was not seen for more than 15 seconds was killed, hangs, or has lost its database. One that
-- stopped properly is not listed.
--
-- Cost: what outbox_stats costs, and a row for each worker. Needs: EXECUTE on outbox_stats.

SELECT w.owner, CASE WHEN w.seen_age > 15 THEN 'silent' ELSE w.state END AS state, w.busy, w.slots,
       make_interval(secs => w.seen_age) AS seen_ago, w.started_at, w.version,
       (SELECT string_agg(name, ', ' ORDER BY name) FROM jsonb_object_keys(w.destinations) AS name) AS destinations
  FROM jsonb_to_recordset(outbox_stats(1) -> 'workers') AS w(
       owner text, state text, busy integer, slots integer, seen_age float8, started_at timestamptz,
       version text, destinations jsonb)
 ORDER BY w.seen_age DESC, w.owner;
