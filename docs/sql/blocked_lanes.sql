-- Which ordering keys stand still behind a dead message, and how many messages wait behind it.
--
-- The 20 that were blocked first, of each destination; 1000 waiting messages mean at least so many.
--
-- Cost: 20 times 1000 index entries for each destination with blocked keys, at most.
-- Needs: SELECT on outbox.

WITH RECURSIVE names AS (
    (SELECT destination FROM outbox WHERE status = 'dead' ORDER BY destination LIMIT 1)
    UNION ALL
    SELECT (SELECT o.destination FROM outbox o
             WHERE o.status = 'dead' AND o.destination > n.destination
             ORDER BY o.destination LIMIT 1)
      FROM names n WHERE n.destination IS NOT NULL
)
SELECT h.destination, h.ordering_key, h.id AS dead_id, now() - h.available_at AS blocked_for, w.waiting,
       h.last_error
  FROM names n
 CROSS JOIN LATERAL (
       SELECT * FROM outbox p
        WHERE p.destination = n.destination AND p.status = 'dead'
          AND p.ordering_key IS NOT NULL AND p.done_at IS NULL
        ORDER BY p.available_at, p.id LIMIT 20) h
 CROSS JOIN LATERAL (
       SELECT count(*) AS waiting FROM (
              SELECT FROM outbox b
               WHERE b.destination = h.destination AND b.ordering_key = h.ordering_key AND b.id > h.id
                 AND b.ordering_key IS NOT NULL AND b.done_at IS NULL
               ORDER BY b.ordering_key, b.id LIMIT 1000) x) w
 ORDER BY blocked_for DESC;
