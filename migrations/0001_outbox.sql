-- The outbox, what workers and consumers keep beside it, and the functions that any language may call.
-- Unqualified names: run it with search_path set to the schema that shall hold the tables.

CREATE TABLE outbox (
    id             bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT outbox_pkey PRIMARY KEY,
    lease_version  bigint      NOT NULL DEFAULT 0,
    created_at     timestamptz NOT NULL DEFAULT now(),
    available_at   timestamptz NOT NULL DEFAULT now(),
    pending_since  timestamptz          DEFAULT now(),
    lease_until    timestamptz,
    done_at        timestamptz,
    attempts       integer     NOT NULL DEFAULT 0,
    reclaims       integer     NOT NULL DEFAULT 0,
    message_id     uuid        NOT NULL DEFAULT gen_random_uuid(),
    status         text        NOT NULL DEFAULT 'pending',
    -- "C": workers page through these keys, and a client's cursor must sort as the index does.
    destination    text        COLLATE "C" NOT NULL DEFAULT 'default',
    ordering_key   text        COLLATE "C",
    aggregate_type text        NOT NULL,
    aggregate_id   text        NOT NULL,
    event_type     text        NOT NULL,
    content_type   text        NOT NULL DEFAULT 'application/json',
    lease_owner    text,
    dedup_key      text        COLLATE "C",
    last_error     text,
    headers        jsonb       NOT NULL DEFAULT '{}',
    payload        jsonb,
    body           bytea,

    CONSTRAINT outbox_status_known     CHECK (status IN ('pending', 'processing', 'done', 'dead')),
    CONSTRAINT outbox_one_payload      CHECK (num_nonnulls(payload, body) = 1),
    CONSTRAINT outbox_headers_strings  CHECK (jsonb_typeof(headers) = 'object'
        AND NOT jsonb_path_exists(headers, 'strict $.* ? (@.type() != "string")')),
    -- Leased exactly while processing, and always by somebody.
    CONSTRAINT outbox_lease_whole      CHECK ((status = 'processing') = (lease_until IS NOT NULL)
        AND (lease_until IS NULL) = (lease_owner IS NULL)),
    CONSTRAINT outbox_pending_owed     CHECK ((status IN ('pending', 'processing')) = (pending_since IS NOT NULL)),
    -- Ages are differences, and infinity has none. Workers read created_at, and not every language's
    -- calendar goes beyond these years.
    CONSTRAINT outbox_times_finite     CHECK (isfinite(available_at)
        AND created_at BETWEEN '0001-01-03 00:00+00' AND '9999-12-29 00:00+00'),
    CONSTRAINT outbox_done_dated       CHECK (status <> 'done' OR done_at IS NOT NULL),
    CONSTRAINT outbox_undone_undated   CHECK (status IN ('done', 'dead') OR done_at IS NULL),
    CONSTRAINT outbox_attempts_counted CHECK (attempts BETWEEN 0 AND 1000000000
        AND reclaims BETWEEN 0 AND 1000000000 AND lease_version >= 0),
    CONSTRAINT outbox_destination_name CHECK (destination ~ '^[a-z][a-z0-9_]*$' AND octet_length(destination) <= 40),
    CONSTRAINT outbox_ordering_key_fit CHECK (ordering_key <> '' AND octet_length(ordering_key) <= 512),
    CONSTRAINT outbox_dedup_key_fit    CHECK (dedup_key <> '' AND octet_length(dedup_key) <= 512),
    CONSTRAINT outbox_names_fit        CHECK (octet_length(aggregate_type) BETWEEN 1 AND 512
        AND octet_length(aggregate_id) BETWEEN 1 AND 512 AND octet_length(event_type) BETWEEN 1 AND 512),
    CONSTRAINT outbox_content_type_fit CHECK (octet_length(content_type) BETWEEN 1 AND 255),
    CONSTRAINT outbox_error_fits       CHECK (char_length(last_error) <= 2000)
);

COMMENT ON TABLE  outbox IS 'Messages that were committed together with business rows and are owed to a destination.';
COMMENT ON COLUMN outbox.message_id    IS 'What consumers deduplicate by. Derived from dedup_key where there is one.';
COMMENT ON COLUMN outbox.lease_version IS 'The fence: raised by every claim, carried by every write to a claimed row.';
COMMENT ON COLUMN outbox.attempts      IS 'Claims that were not refunded.';
COMMENT ON COLUMN outbox.reclaims      IS 'Claims in a row that followed an expired lease; any finalize sets it to 0.';
COMMENT ON COLUMN outbox.available_at  IS 'Not to be claimed before. For a dead row: since when it is dead.';
COMMENT ON COLUMN outbox.pending_since IS 'Since when it is owed: created, or due where the producer scheduled it. NULL once done or dead.';
COMMENT ON COLUMN outbox.done_at       IS 'When it left its lane: done, or dead without blocking anything. A dead row without it blocks its lane.';

-- The two claim branches. The lease index must not say status = 'processing': statistics taken while
-- nothing is in flight would make it look free, and the planner would prefer it to the primary key.
CREATE INDEX outbox_ready  ON outbox (destination, available_at, id) WHERE status = 'pending' AND ordering_key IS NULL;
CREATE INDEX outbox_leased ON outbox (destination, lease_until) WHERE lease_until IS NOT NULL;
-- Lanes: the heads, and which lanes have something due.
CREATE INDEX outbox_lane   ON outbox (destination, ordering_key, id) WHERE ordering_key IS NOT NULL AND done_at IS NULL;
CREATE INDEX outbox_lane_ready ON outbox (destination, available_at, id) WHERE status = 'pending' AND ordering_key IS NOT NULL;
-- The oldest debt of a destination, the dead letters, and what may be pruned.
CREATE INDEX outbox_pending ON outbox (destination, pending_since) WHERE pending_since IS NOT NULL;
CREATE INDEX outbox_dead   ON outbox (destination, id) WHERE status = 'dead';
CREATE INDEX outbox_done   ON outbox (done_at) WHERE status = 'done';
CREATE UNIQUE INDEX outbox_dedup ON outbox (dedup_key) WHERE dedup_key IS NOT NULL;

-- Every message leaves several dead row versions behind, so vacuum must come by the thousand, not by
-- the fifth of the table.
ALTER TABLE outbox SET (
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 1
);

-- One row per life of a worker process: for people, metrics and scaling. Correctness never reads it.
CREATE TABLE outbox_workers (
    incarnation  uuid        PRIMARY KEY,
    owner        text        NOT NULL,
    version      text        NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT now(),
    seen_at      timestamptz NOT NULL DEFAULT now(),
    state        text        NOT NULL CHECK (state IN ('running', 'draining')),
    slots        integer     NOT NULL CHECK (slots >= 0),
    busy         integer     NOT NULL CHECK (busy >= 0),
    counters     jsonb       NOT NULL DEFAULT '{}',
    destinations jsonb       NOT NULL DEFAULT '{}'
);

-- Whether inserts shall notify: only while some worker sleeps.
CREATE TABLE outbox_wakeup (
    single     boolean     PRIMARY KEY DEFAULT true CHECK (single),
    wanted     boolean     NOT NULL DEFAULT false,
    changed_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO outbox_wakeup DEFAULT VALUES;

-- A consumer's receipts, written in the consumer's own transaction.
CREATE TABLE outbox_inbox (
    consumer    text        COLLATE "C" NOT NULL CHECK (octet_length(consumer) BETWEEN 1 AND 255),
    message_id  uuid        NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, message_id)
);
CREATE INDEX outbox_inbox_received ON outbox_inbox (received_at);

-- Who did what to which dead letter.
CREATE TABLE outbox_audit (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT now(),
    db_user     text        NOT NULL DEFAULT session_user,
    action      text        NOT NULL CHECK (action IN ('requeue', 'discard', 'skip')),
    reason      text        NOT NULL CHECK (reason <> ''),
    outbox_id   bigint      NOT NULL,
    message_id  uuid        NOT NULL,
    destination text        COLLATE "C" NOT NULL,
    details     jsonb       NOT NULL DEFAULT '{}'
);
CREATE INDEX outbox_audit_message ON outbox_audit (message_id);

-- A message's id from its dedup key: UUIDv8 (RFC 9562, 5.8) over the first 16 bytes of
-- SHA-256(namespace || key). Not UUIDv5: the core of PostgreSQL has no SHA-1.
CREATE FUNCTION outbox_message_id(dedup_key text) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN encode(set_byte(set_byte(
    substr(sha256('\x7c1d1c5e9f0b4b6a8f3e2a5d6c9b0e17'::bytea || convert_to(dedup_key, 'UTF8')), 1, 16),
    6, get_byte(sha256('\x7c1d1c5e9f0b4b6a8f3e2a5d6c9b0e17'::bytea || convert_to(dedup_key, 'UTF8')), 6) & 15 | 128),
    8, get_byte(sha256('\x7c1d1c5e9f0b4b6a8f3e2a5d6c9b0e17'::bytea || convert_to(dedup_key, 'UTF8')), 8) & 63 | 128),
    'hex')::uuid;

-- Derived, never chosen: a repeat after the first one was delivered and pruned carries the same id,
-- so the consumer's inbox drops it.
CREATE FUNCTION outbox_set_message_id() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    NEW.message_id := outbox_message_id(NEW.dedup_key);
    RETURN NEW;
END $$;
CREATE TRIGGER outbox_dedup BEFORE INSERT ON outbox
    FOR EACH ROW WHEN (NEW.dedup_key IS NOT NULL) EXECUTE FUNCTION outbox_set_message_id();

-- A row that was scheduled for later is not late until then.
CREATE FUNCTION outbox_set_pending_since() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    NEW.pending_since := NEW.available_at;
    RETURN NEW;
END $$;
CREATE TRIGGER outbox_scheduled BEFORE INSERT ON outbox
    FOR EACH ROW WHEN (NEW.status = 'pending' AND NEW.available_at > NEW.created_at)
    EXECUTE FUNCTION outbox_set_pending_since();

-- Id order becomes commit order within a lane: the second writer waits for the first one's commit and
-- only then draws its id. SECURITY DEFINER, since an insert-only role has no right on the sequence.
-- The key's lock is a 64-bit hash: two lanes that share one only wait for each other.
CREATE FUNCTION outbox_enter_lane() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(NEW.ordering_key, hashtextextended(NEW.destination, 0)));
    NEW.id := nextval('outbox_id_seq');
    RETURN NEW;
END $$;
CREATE TRIGGER outbox_lane BEFORE INSERT ON outbox
    FOR EACH ROW WHEN (NEW.ordering_key IS NOT NULL) EXECUTE FUNCTION outbox_enter_lane();

-- One notification per destination and statement, and only while a worker sleeps: a transaction that
-- notifies holds a lock of the whole server through its commit. SECURITY DEFINER, since producers may
-- neither read outbox_wakeup nor the rows.
CREATE FUNCTION outbox_notify() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF (SELECT wanted FROM outbox_wakeup) THEN
        PERFORM pg_notify('outbox', d.destination)
           FROM (SELECT DISTINCT destination FROM fresh WHERE status = 'pending' AND available_at <= now()) d;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER outbox_notify AFTER INSERT ON outbox
    REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION outbox_notify();

-- The producer for every language: returns the message id; a repeated dedup key inserts nothing and
-- returns the same id. ON CONFLICT without a target and no RETURNING: either would need SELECT.
-- Without a target it also passes over a row whose id is taken (the sequence was set back), and such a
-- row is no repeat: so it is for dedup keys only, and what it passed over is tried once more without.
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
    delay          interval    DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    identity uuid := coalesce(outbox_message_id(dedup_key), message_id, gen_random_uuid());
    due      timestamptz := coalesce(available_at, now() + delay, now());
    violated text;
BEGIN
    IF dedup_key IS NOT NULL AND message_id IS NOT NULL THEN
        RAISE EXCEPTION 'outbox_enqueue: give dedup_key or message_id, not both' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF available_at IS NOT NULL AND delay IS NOT NULL THEN
        RAISE EXCEPTION 'outbox_enqueue: give available_at or delay, not both' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF dedup_key IS NULL THEN
        INSERT INTO outbox (message_id, aggregate_type, aggregate_id, event_type, payload, body, content_type,
                            destination, headers, ordering_key, dedup_key, available_at)
        VALUES (identity, aggregate_type, aggregate_id, event_type, payload, body, content_type,
                destination, headers, ordering_key, dedup_key, due);
        RETURN identity;
    END IF;
    INSERT INTO outbox (message_id, aggregate_type, aggregate_id, event_type, payload, body, content_type,
                        destination, headers, ordering_key, dedup_key, available_at)
    VALUES (identity, aggregate_type, aggregate_id, event_type, payload, body, content_type,
            destination, headers, ordering_key, dedup_key, due)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        BEGIN
            INSERT INTO outbox (message_id, aggregate_type, aggregate_id, event_type, payload, body, content_type,
                                destination, headers, ordering_key, dedup_key, available_at)
            VALUES (identity, aggregate_type, aggregate_id, event_type, payload, body, content_type,
                    destination, headers, ordering_key, dedup_key, due);
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
-- a look at the whole table seems as cheap, so the planner may not choose.
-- { "at": epoch seconds, "cap": n,
--   "destinations": { name: { ready, scheduled, processing, expired, dead, ready_lanes, blocked_lanes,
--                             oldest_pending_age, oldest_ready_age (seconds, 0 when there is none) } },
--   "workers": [ { owner, incarnation, version, state, slots, busy, counters, destinations, started_at, seen_age } ] }
CREATE FUNCTION outbox_stats(cap integer DEFAULT 10000) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
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
), counted AS (
    SELECT n.destination, jsonb_build_object(
        'ready',
            (SELECT count(*) FROM (SELECT FROM outbox o WHERE o.destination = n.destination AND o.status = 'pending'
                AND o.ordering_key IS NULL AND o.available_at <= now() LIMIT cap) x)
          + (SELECT count(*) FROM (SELECT FROM outbox o WHERE o.destination = n.destination AND o.status = 'pending'
                AND o.ordering_key IS NOT NULL AND o.available_at <= now() LIMIT cap) x),
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
        'ready_lanes',
            (SELECT count(DISTINCT x.ordering_key) FROM (SELECT o.ordering_key FROM outbox o
                WHERE o.destination = n.destination AND o.status = 'pending' AND o.ordering_key IS NOT NULL
                AND o.available_at <= now() ORDER BY o.available_at, o.id LIMIT cap) x),
        'blocked_lanes',
            (SELECT count(DISTINCT x.ordering_key) FROM (SELECT o.ordering_key, o.done_at FROM outbox o
                WHERE o.destination = n.destination AND o.status = 'dead' ORDER BY o.id LIMIT cap) x
                WHERE x.done_at IS NULL),
        'oldest_pending_age', greatest(0, coalesce(extract(epoch FROM now() -
            (SELECT o.pending_since FROM outbox o WHERE o.destination = n.destination AND o.pending_since IS NOT NULL
              ORDER BY o.pending_since LIMIT 1)), 0))::float8,
        'oldest_ready_age', coalesce(extract(epoch FROM now() - least(
            (SELECT o.available_at FROM outbox o WHERE o.destination = n.destination AND o.status = 'pending'
                AND o.ordering_key IS NULL AND o.available_at <= now() ORDER BY o.available_at, o.id LIMIT 1),
            (SELECT o.available_at FROM outbox o WHERE o.destination = n.destination AND o.status = 'pending'
                AND o.ordering_key IS NOT NULL AND o.available_at <= now() ORDER BY o.available_at, o.id LIMIT 1))), 0)::float8
    ) AS counts
    FROM names n
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
REVOKE EXECUTE ON FUNCTION outbox_stats(integer) FROM PUBLIC;
