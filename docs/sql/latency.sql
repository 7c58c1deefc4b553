-- How long the latest deliveries took, from the insert to the result in the table.
--
-- Of the newest 10000 delivered messages. One that was scheduled for later counts from its insert too.
-- With PGOUTBOX_RETENTION__MODE=delete or archive see outbox_delivery_latency_seconds instead.
--
-- Cost: 10000 rows, at most. Needs: SELECT on outbox.

SELECT x.destination, count(*) AS messages, min(x.done_at) AS since,
       percentile_disc(0.5) WITHIN GROUP (ORDER BY x.took) AS half_within,
       percentile_disc(0.95) WITHIN GROUP (ORDER BY x.took) AS "95_percent_within",
       percentile_disc(0.99) WITHIN GROUP (ORDER BY x.took) AS "99_percent_within",
       max(x.took) AS slowest, round(avg(x.attempts), 2) AS attempts_each
  FROM (SELECT destination, done_at, done_at - created_at AS took, attempts FROM outbox
         WHERE status = 'done'
         ORDER BY done_at DESC LIMIT 10000) x
 GROUP BY x.destination
 ORDER BY x.destination;
