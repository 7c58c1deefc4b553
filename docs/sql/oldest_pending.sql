-- The three messages of each destination that are owed for longest, and what is in their way.
--
-- "owed_for" counts from the creation, or from the due time of a message that was scheduled for later.
-- One in backoff has "next_try" in the future; one that a worker holds has a "lease_owner".
--
-- Cost: three rows for each destination with undelivered messages. Needs: SELECT on outbox.

WITH RECURSIVE names AS (
    -- One step in the index for each destination, instead of a walk over all messages.
    (SELECT destination FROM outbox WHERE pending_since IS NOT NULL ORDER BY destination LIMIT 1)
    UNION ALL
    SELECT (SELECT o.destination FROM outbox o
             WHERE o.pending_since IS NOT NULL AND o.destination > n.destination
             ORDER BY o.destination LIMIT 1)
      FROM names n WHERE n.destination IS NOT NULL
)
SELECT o.destination, now() - o.pending_since AS owed_for, o.id, o.message_id, o.status, o.attempts,
       o.available_at AS next_try, o.lease_owner, o.lease_until, o.ordering_key, o.last_error
  FROM names n
 CROSS JOIN LATERAL (
       SELECT * FROM outbox p
        WHERE p.destination = n.destination AND p.pending_since IS NOT NULL
        ORDER BY p.pending_since LIMIT 3) o
 ORDER BY o.pending_since;
