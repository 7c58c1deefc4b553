-- Who holds how many messages, and how many of them with a lease that has run out.
--
-- A few expired leases for a moment are the trace of a worker that crashed. If their number grows,
-- workers keep crashing, or the lease is too short for a publish.
--
-- Cost: the 10000 leases of each destination that end first, at most. Needs: SELECT on outbox.

WITH RECURSIVE names AS (
    (SELECT destination FROM outbox WHERE lease_until IS NOT NULL ORDER BY destination LIMIT 1)
    UNION ALL
    SELECT (SELECT o.destination FROM outbox o
             WHERE o.lease_until IS NOT NULL AND o.destination > n.destination
             ORDER BY o.destination LIMIT 1)
      FROM names n WHERE n.destination IS NOT NULL
)
SELECT o.destination, o.lease_owner, count(*) AS held, count(*) FILTER (WHERE o.lease_until < now()) AS expired,
       max(now() - o.lease_until) FILTER (WHERE o.lease_until < now()) AS longest_expired,
       max(o.reclaims) AS most_reclaims
  FROM names n
 CROSS JOIN LATERAL (
       SELECT p.destination, p.lease_owner, p.lease_until, p.reclaims FROM outbox p
        WHERE p.destination = n.destination AND p.lease_until IS NOT NULL
        ORDER BY p.lease_until LIMIT 10000) o
 GROUP BY o.destination, o.lease_owner
 ORDER BY expired DESC, o.destination, o.lease_owner;
