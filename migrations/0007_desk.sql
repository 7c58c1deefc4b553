-- Discarding dead letters. A right to delete messages would be one to delete any: this deletes what is dead and
-- nothing else, and not without a trace of who did it and why.

-- Deletes those of the messages that are dead, lets the lanes that they blocked go on, and returns the ids of what
-- it deleted. What somebody else has locked is left alone.
-- The audit keeps what a message was about and not what it said: that is gone.
CREATE FUNCTION outbox_discard(ids bigint[], why text) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    chosen bigint[] := ARRAY(
        SELECT o.id FROM outbox AS o
         WHERE o.id = ANY (ids) AND o.status = 'dead'
         ORDER BY o.id
           FOR UPDATE SKIP LOCKED);
    blocked CONSTANT jsonb := (
        SELECT jsonb_agg(DISTINCT jsonb_build_array(o.destination, o.ordering_key)) FROM outbox AS o
         WHERE o.id = ANY (chosen) AND o.ordering_key IS NOT NULL AND o.done_at IS NULL);
BEGIN
    INSERT INTO outbox_audit (action, reason, outbox_id, message_id, destination, details)
    SELECT 'discard', why, o.id, o.message_id, o.destination,
           jsonb_strip_nulls(jsonb_build_object(
               'ordering_key', o.ordering_key, 'aggregate_type', o.aggregate_type, 'aggregate_id', o.aggregate_id,
               'event_type', o.event_type, 'dedup_key', o.dedup_key, 'created_at', o.created_at,
               'dead_since', o.available_at, 'attempts', o.attempts, 'last_error', o.last_error))
      FROM outbox AS o WHERE o.id = ANY (chosen)
     ORDER BY o.id;
    RETURN QUERY DELETE FROM outbox AS o WHERE o.id = ANY (chosen) AND o.status = 'dead' RETURNING o.id;
    -- What waited behind may be due for long, and workers look everywhere only now and then: as if it had just
    -- become due. Whoever holds it already may go on.
    UPDATE outbox AS o
       SET available_at = now()
     WHERE o.id = ANY (ARRAY(
        SELECT p.id
          FROM jsonb_array_elements(blocked) AS lane
         CROSS JOIN LATERAL (
            SELECT head.id FROM outbox AS head
             WHERE head.destination = lane ->> 0 AND head.ordering_key = lane ->> 1
               AND head.ordering_key IS NOT NULL AND head.done_at IS NULL
             ORDER BY head.ordering_key, head.id
             LIMIT 1) AS first
          JOIN outbox AS p ON p.id = first.id
         WHERE p.status = 'pending' AND p.available_at <= now()
           FOR UPDATE OF p SKIP LOCKED));
END $$;
REVOKE ALL ON FUNCTION outbox_discard(bigint[], text) FROM PUBLIC;
