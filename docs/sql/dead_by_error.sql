-- Why messages died, the commonest reason first: one repair often serves thousands.
--
-- Digits are left out of the errors, so that those of the same kind fall together.
--
-- Cost: the newest 10000 dead messages of each destination, at most. Needs: SELECT on outbox.

WITH RECURSIVE names AS (
    (SELECT destination FROM outbox WHERE status = 'dead' ORDER BY destination LIMIT 1)
    UNION ALL
    SELECT (SELECT o.destination FROM outbox o
             WHERE o.status = 'dead' AND o.destination > n.destination
             ORDER BY o.destination LIMIT 1)
      FROM names n WHERE n.destination IS NOT NULL
)
SELECT o.destination, regexp_replace(left(o.last_error, 200), '\d+', '#', 'g') AS error,
       count(*) AS messages, min(o.id) AS an_id, max(o.attempts) AS most_attempts,
       min(o.available_at) AS first_died, max(o.available_at) AS last_died
  FROM names n
 CROSS JOIN LATERAL (
       SELECT p.destination, p.last_error, p.id, p.attempts, p.available_at FROM outbox p
        WHERE p.destination = n.destination AND p.status = 'dead'
        ORDER BY p.id DESC LIMIT 10000) o
 GROUP BY 1, 2
 ORDER BY messages DESC, 1, 2;
