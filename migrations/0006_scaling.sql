-- What the number of workers is decided by and was not told: what could be published at the same moment, and
-- when the next scheduled message is due. Otherwise as before.

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
-- What could be published at the same moment: one message of each ready lane and of each lane under a lease
-- that is in force, and every message without an ordering key that is ready or processing.
-- { "at": epoch seconds, "cap": n,
--   "destinations": { name: { ready, ready_unordered, waiting, scheduled, processing, processing_unordered,
--                             expired, dead, ready_lanes, processing_lanes, blocked_lanes,
--                             oldest_pending_age, oldest_ready_age, oldest_blocked_age
--                             (seconds, 0 when there is none),
--                             next_due_in (seconds, null when nothing is scheduled) } },
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
        'ready', l.ready + u.ready,
        'ready_unordered', u.ready,
        'waiting', greatest(0,
            (SELECT count(*) FROM (SELECT FROM outbox o WHERE o.destination = n.destination AND o.status = 'pending'
                AND o.ordering_key IS NOT NULL AND o.available_at <= now() LIMIT cap + l.ready) x) - l.ready),
        'scheduled',
            (SELECT count(*) FROM (SELECT FROM outbox o WHERE o.destination = n.destination AND o.status = 'pending'
                AND o.ordering_key IS NULL AND o.available_at > now() LIMIT cap) x)
          + (SELECT count(*) FROM (SELECT FROM outbox o WHERE o.destination = n.destination AND o.status = 'pending'
                AND o.ordering_key IS NOT NULL AND o.available_at > now() LIMIT cap) x),
        'processing', p.all_of_them,
        'processing_unordered', p.unordered,
        'processing_lanes', p.lanes,
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
                AND o.ordering_key IS NOT NULL AND o.done_at IS NULL ORDER BY o.available_at, o.id LIMIT 1)), 0))::float8,
        'next_due_in', extract(epoch FROM least(
            (SELECT o.available_at FROM outbox o WHERE o.destination = n.destination AND o.status = 'pending'
                AND o.ordering_key IS NULL AND o.available_at > now() ORDER BY o.available_at, o.id LIMIT 1),
            (SELECT o.available_at FROM outbox o WHERE o.destination = n.destination AND o.status = 'pending'
                AND o.ordering_key IS NOT NULL AND o.available_at > now() ORDER BY o.available_at, o.id LIMIT 1))
            - now())::float8
    ) AS counts
    FROM names n JOIN lanes l USING (destination)
    CROSS JOIN LATERAL (
        SELECT count(*) AS ready FROM (
            SELECT FROM outbox o WHERE o.destination = n.destination AND o.status = 'pending'
                AND o.ordering_key IS NULL AND o.available_at <= now() LIMIT cap) x) u
    CROSS JOIN LATERAL (
        SELECT count(*) AS all_of_them,
               count(*) FILTER (WHERE x.ordering_key IS NULL) AS unordered,
               count(DISTINCT x.ordering_key) FILTER (WHERE x.lease_until >= now()) AS lanes
          FROM (SELECT o.ordering_key, o.lease_until FROM outbox o WHERE o.destination = n.destination
                   AND o.lease_until IS NOT NULL LIMIT cap) x) p
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
