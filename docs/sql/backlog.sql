-- What waits for each destination, and for how long: the first thing to look at.
--
-- "at_least" marks counts that stopped at 10000. "oldest_pending" is the age to alert on, at your own
-- limit (5 minutes, say): it grows whenever delivery stops, for whatever reason. "oldest_ready" leaves
-- out what is in backoff or scheduled.
--
-- Cost: bounded by index entries, whatever is stored. Needs: EXECUTE on outbox_stats.

SELECT d.key AS destination, s.ready, s.waiting, s.scheduled, s.processing AS leased, s.expired, s.dead,
       greatest(s.ready, s.waiting, s.scheduled, s.processing, s.dead) >= 10000 AS at_least,
       make_interval(secs => s.oldest_pending_age) AS oldest_pending,
       make_interval(secs => s.oldest_ready_age) AS oldest_ready
  FROM jsonb_each(outbox_stats() -> 'destinations') d
 CROSS JOIN LATERAL jsonb_to_record(d.value) AS s(
       ready bigint, waiting bigint, scheduled bigint, processing bigint, expired bigint, dead bigint,
       oldest_pending_age float8, oldest_ready_age float8)
 ORDER BY s.oldest_pending_age DESC, d.key;
