-- Blocked lanes can be counted and aged, statistics tell what can be claimed from what waits behind
-- something, and outbox_enqueue makes the ordering key of an aggregate.

-- Workers and producers may be at work. With the strongest lock first, the statements below and those of
-- later migrations wait for nobody who waits for this transaction.
LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE;

-- Dead rows only, so next to nothing is written for it. available_at: since when it is dead.
CREATE INDEX outbox_blocked ON outbox (destination, available_at, id)
    WHERE status = 'dead' AND ordering_key IS NOT NULL AND done_at IS NULL;

-- The key of an aggregate's lane. What precedes the first slash is the type, so its own slashes are
-- escaped (and with them the sign that escapes): no two aggregates share a key.
CREATE FUNCTION outbox_aggregate_key(aggregate_type text, aggregate_id text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN replace(replace(aggregate_type, '%', '%25'), '/', '%2F') || '/' || aggregate_id;

-- As before, with one parameter more. Two functions of one name would make most calls ambiguous.
DROP FUNCTION outbox_enqueue(text, text, text, jsonb, bytea, text, text, jsonb, text, text, uuid, timestamptz, interval);
CREATE FUNCTION outbox_enqueue(
    aggregate_type text,
    aggregate_id   text,
    event_type     text,
    payload        jsonb       DEFAULT NULL,
    body           bytea       DEFAULT NULL,
    content_type   text        DEFAULT 'application/json',
    destination    text        DEFAULT 'default',
    headers        jsonb       DEFAULT '{}',
    ordering_key   text        DEFAULT NULL,
    dedup_key      text        DEFAULT NULL,
    message_id     uuid        DEFAULT NULL,
    available_at   timestamptz DEFAULT NULL,
    delay          interval    DEFAULT NULL,
    ordered        boolean     DEFAULT false
) RETURNS uuid LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    identity uuid := coalesce(outbox_message_id(dedup_key), message_id, gen_random_uuid());
    due      timestamptz := coalesce(available_at, now() + delay, now());
    lane     text := CASE WHEN ordered THEN outbox_aggregate_key(aggregate_type, aggregate_id)
                          ELSE ordering_key END;
    violated text;
BEGIN
    IF dedup_key IS NOT NULL AND message_id IS NOT NULL THEN
        RAISE EXCEPTION 'outbox_enqueue: give dedup_key or message_id, not both' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF available_at IS NOT NULL AND delay IS NOT NULL THEN
        RAISE EXCEPTION 'outbox_enqueue: give available_at or delay, not both' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF ordered AND ordering_key IS NOT NULL THEN
        RAISE EXCEPTION 'outbox_enqueue: give ordering_key or ordered, not both' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF dedup_key IS NULL THEN
        INSERT INTO outbox (message_id, aggregate_type, aggregate_id, event_type, payload, body, content_type,
                            destination, headers, ordering_key, dedup_key, available_at)
        VALUES (identity, aggregate_type, aggregate_id, event_type, payload, body, content_type,
                destination, headers, lane, dedup_key, due);
        RETURN identity;
    END IF;
    INSERT INTO outbox (message_id, aggregate_type, aggregate_id, event_type, payload, body, content_type,
                        destination, headers, ordering_key, dedup_key, available_at)
    VALUES (identity, aggregate_type, aggregate_id, event_type, payload, body, content_type,
            destination, headers, lane, dedup_key, due)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        BEGIN
            INSERT INTO outbox (message_id, aggregate_type, aggregate_id, event_type, payload, body, content_type,
                                destination, headers, ordering_key, dedup_key, available_at)
            VALUES (identity, aggregate_type, aggregate_id, event_type, payload, body, content_type,
                    destination, headers, lane, dedup_key, due);
        EXCEPTION WHEN unique_violation THEN
            GET STACKED DIAGNOSTICS violated = CONSTRAINT_NAME;
            IF violated <> 'outbox_dedup' THEN
                RAISE;
            END IF;
        END;
    END IF;
    RETURN identity;
END $$;

-- Counts and ages, never contents. Every count stops at cap rows and every part is a range of one index
-- that begins with the destination, so the cost is bounded whatever the table holds.
-- Only index scans stop at the cap: with statistics from a quiet time a bitmap of the whole range or
-- a look at the whole table seems as cheap, so the planner may not choose. Nor shall a guess at the
-- recursive parts make it compile anything.
-- Lanes: the head of each is found by going from key to key through outbox_lane, cap keys at most. Where
-- there are more, the lanes of the oldest and the newest cap rows that are due are looked at besides,
-- and what is ready beyond those is not counted.
-- A lane is ready when its head can be claimed: pending and due, or its lease expired. Its rows are ready
-- from a due head on, up to the first that is not due. All other due rows of lanes are waiting: behind a
-- head that is dead, leased or not yet due.
-- { "at": epoch seconds, "cap": n,
--   "destinations": { name: { ready, waiting, scheduled, processing, expired, dead, ready_lanes,
--                             blocked_lanes, oldest_pending_age, oldest_ready_age, oldest_blocked_age
--                             (seconds, 0 when there is none) } },
--   "workers": [ { owner, incarnation, version, state, slots, busy, counters, destinations, started_at, seen_age } ] }
CREATE OR REPLACE FUNCTION outbox_stats(cap integer DEFAULT 10000) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
WITH RECURSIVE
pending_names AS (
    (SELECT destination FROM outbox WHERE pending_since IS NOT NULL ORDER BY destination LIMIT 1)
    UNION ALL
    SELECT (SELECT o.destination FROM outbox o WHERE o.pending_since IS NOT NULL AND o.destination > n.destination
             ORDER BY o.destination LIMIT 1)
      FROM pending_names n WHERE n.destination IS NOT NULL
), dead_names AS (
    (SELECT destination FROM outbox WHERE status = 'dead' ORDER BY destination LIMIT 1)
    UNION ALL
    SELECT (SELECT o.destination FROM outbox o WHERE o.status = 'dead' AND o.destination > n.destination
             ORDER BY o.destination LIMIT 1)
      FROM dead_names n WHERE n.destination IS NOT NULL
), names AS (
    SELECT destination FROM pending_names WHERE destination IS NOT NULL
    UNION
    SELECT destination FROM dead_names WHERE destination IS NOT NULL
), lanes AS MATERIALIZED (
    SELECT n.destination, l.ready, l.ready_lanes, l.oldest
      FROM names n CROSS JOIN LATERAL (
        WITH RECURSIVE walked AS (
            (SELECT o.ordering_key, o.id, o.status, o.available_at, o.lease_until, 1 AS step FROM outbox o
              WHERE o.destination = n.destination AND o.ordering_key IS NOT NULL AND o.done_at IS NULL
              ORDER BY o.ordering_key, o.id LIMIT 1)
            UNION ALL
            SELECT h.*, w.step + 1 FROM walked w CROSS JOIN LATERAL (
                SELECT o.ordering_key, o.id, o.status, o.available_at, o.lease_until FROM outbox o
                 WHERE o.destination = n.destination AND o.ordering_key > w.ordering_key
                   AND o.ordering_key IS NOT NULL AND o.done_at IS NULL
                 ORDER BY o.ordering_key, o.id LIMIT 1) h
             WHERE w.step < cap
        ), further AS (
            SELECT x.ordering_key
              FROM (SELECT (SELECT w.ordering_key FROM walked w WHERE w.step = cap) AS last) e CROSS JOIN LATERAL (
                (SELECT o.ordering_key FROM outbox o WHERE o.destination = n.destination AND o.status = 'pending'
                    AND o.ordering_key IS NOT NULL AND o.available_at <= now()
                  ORDER BY o.available_at, o.id LIMIT CASE WHEN e.last IS NULL THEN 0 ELSE cap END)
                UNION
                (SELECT o.ordering_key FROM outbox o WHERE o.destination = n.destination AND o.status = 'pending'
                    AND o.ordering_key IS NOT NULL AND o.available_at <= now()
                  ORDER BY o.available_at DESC, o.id DESC LIMIT CASE WHEN e.last IS NULL THEN 0 ELSE cap END)) x
             WHERE x.ordering_key > e.last
        ), heads AS MATERIALIZED (
            SELECT * FROM (
                SELECT w.ordering_key, w.id, w.status, w.available_at, w.lease_until FROM walked w
                UNION ALL
                SELECT f.ordering_key, h.* FROM further f CROSS JOIN LATERAL (
                    SELECT o.id, o.status, o.available_at, o.lease_until FROM outbox o
                     WHERE o.destination = n.destination AND o.ordering_key = f.ordering_key
                       AND o.ordering_key IS NOT NULL AND o.done_at IS NULL
                     ORDER BY o.ordering_key, o.id LIMIT 1) h) all_heads
             WHERE (status = 'pending' AND available_at <= now()) OR lease_until < now()
        )
        SELECT (SELECT count(*) FROM (
                    SELECT bool_and(x.due) OVER (PARTITION BY x.ordering_key ORDER BY x.id) AS ready FROM (
                        SELECT r.* FROM heads h CROSS JOIN LATERAL (
                            SELECT o.ordering_key, o.id, o.status = 'pending' AND o.available_at <= now() AS due
                              FROM outbox o
                             WHERE o.destination = n.destination AND o.ordering_key = h.ordering_key AND o.id >= h.id
                               AND o.ordering_key IS NOT NULL AND o.done_at IS NULL
                             ORDER BY o.ordering_key, o.id LIMIT cap) r
                         WHERE h.status = 'pending' LIMIT cap) x) y
                 WHERE y.ready) AS ready,
               (SELECT least(count(*), cap) FROM heads) AS ready_lanes,
               (SELECT min(h.available_at) FROM heads h WHERE h.status = 'pending') AS oldest) l
), counted AS (
    SELECT n.destination, jsonb_build_object(
        'ready', l.ready
          + (SELECT count(*) FROM (SELECT FROM outbox o WHERE o.destination = n.destination AND o.status = 'pending'
                AND o.ordering_key IS NULL AND o.available_at <= now() LIMIT cap) x),
        'waiting', greatest(0,
            (SELECT count(*) FROM (SELECT FROM outbox o WHERE o.destination = n.destination AND o.status = 'pending'
                AND o.ordering_key IS NOT NULL AND o.available_at <= now() LIMIT cap + l.ready) x) - l.ready),
        'scheduled',
            (SELECT count(*) FROM (SELECT FROM outbox o WHERE o.destination = n.destination AND o.status = 'pending'
                AND o.ordering_key IS NULL AND o.available_at > now() LIMIT cap) x)
          + (SELECT count(*) FROM (SELECT FROM outbox o WHERE o.destination = n.destination AND o.status = 'pending'
                AND o.ordering_key IS NOT NULL AND o.available_at > now() LIMIT cap) x),
        'processing',
            (SELECT count(*) FROM (SELECT FROM outbox o WHERE o.destination = n.destination
                AND o.lease_until IS NOT NULL LIMIT cap) x),
        'expired',
            (SELECT count(*) FROM (SELECT FROM outbox o WHERE o.destination = n.destination
                AND o.lease_until < now() LIMIT cap) x),
        'dead',
            (SELECT count(*) FROM (SELECT FROM outbox o WHERE o.destination = n.destination
                AND o.status = 'dead' LIMIT cap) x),
        'ready_lanes', l.ready_lanes,
        'blocked_lanes',
            (SELECT count(DISTINCT x.ordering_key) FROM (SELECT o.ordering_key FROM outbox o
                WHERE o.destination = n.destination AND o.status = 'dead' AND o.ordering_key IS NOT NULL
                AND o.done_at IS NULL ORDER BY o.available_at, o.id LIMIT cap) x),
        'oldest_pending_age', greatest(0, coalesce(extract(epoch FROM now() -
            (SELECT o.pending_since FROM outbox o WHERE o.destination = n.destination AND o.pending_since IS NOT NULL
              ORDER BY o.pending_since LIMIT 1)), 0))::float8,
        'oldest_ready_age', coalesce(extract(epoch FROM now() - least(l.oldest,
            (SELECT o.available_at FROM outbox o WHERE o.destination = n.destination AND o.status = 'pending'
                AND o.ordering_key IS NULL AND o.available_at <= now() ORDER BY o.available_at, o.id LIMIT 1))), 0)::float8,
        'oldest_blocked_age', greatest(0, coalesce(extract(epoch FROM now() -
            (SELECT o.available_at FROM outbox o WHERE o.destination = n.destination AND o.status = 'dead'
                AND o.ordering_key IS NOT NULL AND o.done_at IS NULL ORDER BY o.available_at, o.id LIMIT 1)), 0))::float8
    ) AS counts
    FROM names n JOIN lanes l USING (destination)
)
SELECT jsonb_build_object(
    'at', extract(epoch FROM now())::float8,
    'cap', cap,
    'destinations', coalesce((SELECT jsonb_object_agg(destination, counts) FROM counted), '{}'),
    'workers', coalesce((SELECT jsonb_agg(jsonb_build_object(
        'owner', w.owner, 'incarnation', w.incarnation, 'version', w.version, 'state', w.state,
        'slots', w.slots, 'busy', w.busy, 'counters', w.counters, 'destinations', w.destinations,
        'started_at', w.started_at, 'seen_age', extract(epoch FROM now() - w.seen_at)::float8)
        ORDER BY w.owner, w.started_at) FROM outbox_workers w), '[]'))
$$;
