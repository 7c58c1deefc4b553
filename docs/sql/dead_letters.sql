-- What waits for a person: the newest 100 dead messages of each destination.
--
-- One that "blocks" also holds up all later messages with its ordering key. After repairing what was
-- wrong: `pgoutbox dead requeue ID`, or `pgoutbox dead skip ID` (docs/operations.md).
--
-- Cost: the rows that are shown. Needs: SELECT on outbox.

WITH RECURSIVE names AS (
    (SELECT destination FROM outbox WHERE status = 'dead' ORDER BY destination LIMIT 1)
    UNION ALL
    SELECT (SELECT o.destination FROM outbox o
             WHERE o.status = 'dead' AND o.destination > n.destination
             ORDER BY o.destination LIMIT 1)
      FROM names n WHERE n.destination IS NOT NULL
)
SELECT o.id, o.destination, o.ordering_key, o.ordering_key IS NOT NULL AND o.done_at IS NULL AS blocks,
       o.aggregate_type, o.aggregate_id, o.event_type, o.attempts, o.available_at AS dead_since,
       o.message_id, o.last_error
  FROM names n
 CROSS JOIN LATERAL (
       SELECT * FROM outbox p
        WHERE p.destination = n.destination AND p.status = 'dead'
        ORDER BY p.id DESC LIMIT 100) o
 ORDER BY o.destination, o.id DESC;
