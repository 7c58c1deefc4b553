-- How often undelivered messages had to be tried. A growing tail is a destination that fails.
--
-- An attempt is a claim that was not refunded, so what is being published for the first time has one.
--
-- Cost: the 10000 oldest messages of each destination, at most. Needs: SELECT on outbox.

WITH RECURSIVE names AS (
    (SELECT destination FROM outbox WHERE pending_since IS NOT NULL ORDER BY destination LIMIT 1)
    UNION ALL
    SELECT (SELECT o.destination FROM outbox o
             WHERE o.pending_since IS NOT NULL AND o.destination > n.destination
             ORDER BY o.destination LIMIT 1)
      FROM names n WHERE n.destination IS NOT NULL
)
SELECT o.destination, o.attempts, count(*) AS messages, max(o.last_error) AS an_error
  FROM names n
 CROSS JOIN LATERAL (
       SELECT p.destination, p.attempts, left(p.last_error, 200) AS last_error FROM outbox p
        WHERE p.destination = n.destination AND p.pending_since IS NOT NULL
        ORDER BY p.pending_since LIMIT 10000) o
 GROUP BY o.destination, o.attempts
 ORDER BY o.destination, o.attempts;
