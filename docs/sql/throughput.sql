-- Messages delivered in each minute of the last hour.
--
-- Minutes without any are shown as 0. Where the newest 100000 do not reach back an hour, the earliest
-- minutes are missing. With PGOUTBOX_RETENTION__MODE=delete or archive nothing stays in the table to
-- be counted: ask Prometheus for outbox_messages_published_total.
--
-- Cost: 100000 entries of one index, at most. Needs: SELECT on outbox.

WITH delivered AS (
    SELECT date_trunc('minute', x.done_at) AS minute, count(*) AS messages
      FROM (SELECT done_at FROM outbox
             WHERE status = 'done' AND done_at > now() - interval '1 hour'
             ORDER BY done_at DESC LIMIT 100000) x
     GROUP BY 1
)
SELECT m AS minute, coalesce(d.messages, 0) AS messages, round(coalesce(d.messages, 0) / 60.0, 1) AS per_second
  FROM generate_series((SELECT min(minute) FROM delivered), date_trunc('minute', now()), interval '1 minute') m
  LEFT JOIN delivered d ON d.minute = m
 ORDER BY m DESC;
