-- Where finished messages go under the retention mode "archive". Empty under the other modes.

-- What was delivered, and when. The columns that a finished message has no more (lease, error, debt)
-- are not here. Partitioned by the day of done_at, so that a day leaves without a single DELETE.
CREATE TABLE outbox_archive (
    id             bigint      NOT NULL,
    created_at     timestamptz NOT NULL,
    available_at   timestamptz NOT NULL,
    done_at        timestamptz NOT NULL,
    attempts       integer     NOT NULL,
    message_id     uuid        NOT NULL,
    destination    text        COLLATE "C" NOT NULL,
    ordering_key   text        COLLATE "C",
    aggregate_type text        NOT NULL,
    aggregate_id   text        NOT NULL,
    event_type     text        NOT NULL,
    content_type   text        NOT NULL,
    dedup_key      text        COLLATE "C",
    headers        jsonb       NOT NULL,
    payload        jsonb,
    body           bytea,
    CONSTRAINT outbox_archive_pkey PRIMARY KEY (done_at, id)
) PARTITION BY RANGE (done_at);

COMMENT ON TABLE outbox_archive IS 'Messages that were delivered under the retention mode archive, by day (UTC).';

-- The partitions and their bounds, read from the catalogue. Its own time zone and date style: bounds
-- are printed in the session's. A partition that is being detached takes no rows any more, and one
-- without both bounds (a default partition, MINVALUE) is none of ours.
CREATE FUNCTION outbox_archive_partitions(OUT name text, OUT since timestamptz, OUT until timestamptz)
RETURNS SETOF record LANGUAGE sql STABLE
SET search_path FROM CURRENT SET TimeZone = 'UTC' SET DateStyle = 'ISO, YMD' AS $$
SELECT p.name, p.bounds[1]::timestamptz, p.bounds[2]::timestamptz
  FROM (SELECT c.relname::text AS name,
               regexp_match(pg_get_expr(c.relpartbound, c.oid),
                            'FROM \(''([^'']+)''\) TO \(''([^'']+)''\)') AS bounds
          FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = 'outbox_archive'::regclass AND NOT i.inhdetachpending) p
 WHERE p.bounds IS NOT NULL
 ORDER BY 2
$$;

-- Today's partition and those of the days ahead: how many were made, or NULL while another session is
-- at it. Days are days of UTC, whatever the session's time zone. Attached, not created in place: that
-- would shut the whole archive for a moment, and wait for every report that reads it.
-- SECURITY DEFINER, since workers own no table; a short lock_timeout, since everybody who wants the
-- table queues up behind a lock that is waited for.
CREATE FUNCTION outbox_archive_prepare(ahead integer DEFAULT 3) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET lock_timeout = '1s' SET TimeZone = 'UTC' SET DateStyle = 'ISO, YMD' AS $$
DECLARE
    today     timestamptz := date_trunc('day', now(), 'UTC');
    day       timestamptz;
    partition text;
    made      integer := 0;
BEGIN
    IF ahead NOT BETWEEN 0 AND 30 THEN
        RAISE EXCEPTION 'outbox_archive_prepare: ahead must be between 0 and 30 days, not %', ahead
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NOT pg_try_advisory_xact_lock(7239162507031187527) THEN
        RETURN NULL;
    END IF;
    FOR i IN 0 .. ahead LOOP
        day := today + make_interval(days => i);
        CONTINUE WHEN EXISTS (SELECT FROM outbox_archive_partitions() p WHERE p.since <= day AND p.until > day);
        partition := 'outbox_archive_' || to_char(day, 'YYYYMMDD');
        EXECUTE format('CREATE TABLE %I (LIKE outbox_archive INCLUDING ALL)', partition);
        EXECUTE format('ALTER TABLE outbox_archive ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                       partition, day, day + interval '1 day');
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;
REVOKE EXECUTE ON FUNCTION outbox_archive_prepare(integer) FROM PUBLIC;

-- Drops the oldest partition, if everything in it was finished longer than keep ago, and returns its
-- name; NULL when there is none, or while another session is at it. One at a time, for the archive is
-- shut until the transaction ends. Plain DETACH: CONCURRENTLY cannot run inside a function.
CREATE FUNCTION outbox_archive_expire(keep interval) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET lock_timeout = '1s' SET TimeZone = 'UTC' AS $$
DECLARE
    partition text;
BEGIN
    IF keep IS NULL OR keep < interval '0' THEN
        RAISE EXCEPTION 'outbox_archive_expire: keep must not be negative, and it is %', coalesce(keep::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NOT pg_try_advisory_xact_lock(7239162507031187527) THEN
        RETURN NULL;
    END IF;
    SELECT p.name INTO partition
      FROM outbox_archive_partitions() p WHERE p.until <= now() - keep ORDER BY p.until LIMIT 1;
    IF partition IS NOT NULL THEN
        EXECUTE format('ALTER TABLE outbox_archive DETACH PARTITION %I', partition);
        EXECUTE format('DROP TABLE %I', partition);
    END IF;
    RETURN partition;
END $$;
REVOKE EXECUTE ON FUNCTION outbox_archive_expire(interval) FROM PUBLIC;
