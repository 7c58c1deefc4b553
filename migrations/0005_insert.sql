-- What an insert costs. PostgreSQL reads and plans every CHECK of a table, and every WHEN of a trigger that
-- fires for inserts, again for each statement, and most statements insert one row: fifteen CHECKs and three
-- WHENs cost three times as much as the row and its indexes. So triggers hold the rules instead. They are
-- the same as before, for inserts and updates, and errors carry the same names.
-- A new rule belongs into outbox_state or outbox_check: a CHECK of the table would be paid for again.

-- The columns that workers write, as one value, and the rules about it. They belong to a domain, since a
-- session prepares those of a domain once: whoever casts a row's state into it has checked them all.
CREATE TYPE outbox_state_columns AS (
    status        text,
    available_at  timestamptz,
    pending_since timestamptz,
    lease_until   timestamptz,
    lease_owner   text,
    done_at       timestamptz,
    attempts      integer,
    reclaims      integer,
    lease_version bigint,
    last_error    text
);
-- No column has this type: a rule that is added later is not tried on the rows that are there.
CREATE DOMAIN outbox_state AS outbox_state_columns
    CONSTRAINT outbox_status_known     CHECK ((VALUE).status IN ('pending', 'processing', 'done', 'dead'))
    -- Leased exactly while processing, and always by somebody.
    CONSTRAINT outbox_lease_whole      CHECK (((VALUE).status = 'processing') = ((VALUE).lease_until IS NOT NULL)
        AND ((VALUE).lease_until IS NULL) = ((VALUE).lease_owner IS NULL))
    CONSTRAINT outbox_pending_owed     CHECK (((VALUE).status IN ('pending', 'processing')) = ((VALUE).pending_since IS NOT NULL))
    -- Ages are differences, and infinity has none.
    CONSTRAINT outbox_times_finite     CHECK (isfinite((VALUE).available_at))
    CONSTRAINT outbox_done_dated       CHECK ((VALUE).status <> 'done' OR (VALUE).done_at IS NOT NULL)
    CONSTRAINT outbox_undone_undated   CHECK ((VALUE).status IN ('done', 'dead') OR (VALUE).done_at IS NULL)
    CONSTRAINT outbox_attempts_counted CHECK ((VALUE).attempts BETWEEN 0 AND 1000000000
        AND (VALUE).reclaims BETWEEN 0 AND 1000000000 AND (VALUE).lease_version >= 0)
    CONSTRAINT outbox_error_fits       CHECK (char_length((VALUE).last_error) <= 2000);
COMMENT ON DOMAIN outbox_state IS 'The rules for the columns of outbox that workers write.';

-- Everything that has to happen before a row is inserted, in one call and mostly by one expression: the
-- rules for the columns that only producers write, the message id of a dedup key, the time since when
-- the row is owed, and its place in its lane. What is NULL and may not be is left to NOT NULL.
-- SECURITY DEFINER, since an insert-only role has no right on the sequence.
CREATE FUNCTION outbox_check() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    finding text := CASE
        WHEN num_nonnulls(NEW.payload, NEW.body) <> 1 THEN 'outbox_one_payload'
        WHEN NEW.headers <> '{}' AND (jsonb_typeof(NEW.headers) <> 'object'
          OR jsonb_path_exists(NEW.headers, 'strict $.* ? (@.type() != "string")')) THEN 'outbox_headers_strings'
        -- Workers read created_at, and not every language's calendar goes beyond these years.
        WHEN NOT isfinite(NEW.available_at)
          OR NEW.created_at NOT BETWEEN '0001-01-03 00:00+00' AND '9999-12-29 00:00+00' THEN 'outbox_times_finite'
        WHEN NEW.destination !~ '^[a-z][a-z0-9_]*$' OR octet_length(NEW.destination) > 40 THEN 'outbox_destination_name'
        WHEN octet_length(NEW.aggregate_type) NOT BETWEEN 1 AND 512
          OR octet_length(NEW.aggregate_id) NOT BETWEEN 1 AND 512
          OR octet_length(NEW.event_type) NOT BETWEEN 1 AND 512 THEN 'outbox_names_fit'
        WHEN octet_length(NEW.content_type) NOT BETWEEN 1 AND 255 THEN 'outbox_content_type_fit'
        WHEN octet_length(NEW.ordering_key) NOT BETWEEN 1 AND 512 THEN 'outbox_ordering_key_fit'
        WHEN octet_length(NEW.dedup_key) NOT BETWEEN 1 AND 512 THEN 'outbox_dedup_key_fit'
        -- Most are due, have no key, and come in the state that the defaults make.
        WHEN (NEW.available_at <= NEW.created_at AND NEW.status = 'pending' AND NEW.pending_since IS NOT NULL
          AND NEW.attempts = 0 AND NEW.reclaims = 0 AND NEW.lease_version = 0 AND num_nonnulls(NEW.ordering_key,
              NEW.dedup_key, NEW.lease_until, NEW.lease_owner, NEW.done_at, NEW.last_error) = 0) IS NOT TRUE THEN 'more'
    END;
BEGIN
    IF finding IS NULL THEN
        RETURN NEW;
    END IF;
    IF finding <> 'more' THEN
        -- As a CHECK would say it, but without the row: what it holds is nobody's business.
        RAISE EXCEPTION 'new row for relation "%" violates check constraint "%"', TG_TABLE_NAME, finding
            USING ERRCODE = 'check_violation', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, CONSTRAINT = finding,
                  DETAIL = CASE finding
                      WHEN 'outbox_one_payload' THEN 'Either payload or body has to be given, and not both.'
                      WHEN 'outbox_headers_strings' THEN 'headers has to be a JSON object of strings.'
                      WHEN 'outbox_times_finite' THEN 'available_at has to be finite, and created_at within the years 1 to 9999.'
                      WHEN 'outbox_destination_name' THEN 'destination has to be a lower-case letter followed by lower-case letters, digits and _, 40 characters at most.'
                      WHEN 'outbox_names_fit' THEN 'aggregate_type, aggregate_id and event_type have to have 1 to 512 bytes each.'
                      WHEN 'outbox_content_type_fit' THEN 'content_type has to have 1 to 255 bytes.'
                      WHEN 'outbox_ordering_key_fit' THEN 'ordering_key has to be NULL or have 1 to 512 bytes.'
                      WHEN 'outbox_dedup_key_fit' THEN 'dedup_key has to be NULL or have 1 to 512 bytes.'
                  END;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        RETURN NULL;
    END IF;
    -- Derived, never chosen: a repeat after the first one was delivered and pruned carries the same id,
    -- so the consumer's inbox drops it.
    IF NEW.dedup_key IS NOT NULL THEN
        NEW.message_id := outbox_message_id(NEW.dedup_key);
    END IF;
    -- A row that was scheduled for later is not late until then.
    IF NEW.status = 'pending' AND NEW.available_at > NEW.created_at THEN
        NEW.pending_since := NEW.available_at;
    END IF;
    -- The cast is the check.
    IF ROW(NEW.status, NEW.available_at, NEW.pending_since, NEW.lease_until, NEW.lease_owner, NEW.done_at,
           NEW.attempts, NEW.reclaims, NEW.lease_version, NEW.last_error)::outbox_state IS NULL THEN
        NULL;
    END IF;
    -- Id order becomes commit order within a lane: the second writer waits for the first one's commit
    -- and only then draws its id. The key's lock is a 64-bit hash: two lanes that share one only wait
    -- for each other.
    IF NEW.ordering_key IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(hashtextextended(NEW.ordering_key, hashtextextended(NEW.destination, 0)));
        NEW.id := nextval('outbox_id_seq');
    END IF;
    RETURN NEW;
END $$;

ALTER TABLE outbox
    DROP CONSTRAINT outbox_status_known,
    DROP CONSTRAINT outbox_one_payload,
    DROP CONSTRAINT outbox_headers_strings,
    DROP CONSTRAINT outbox_lease_whole,
    DROP CONSTRAINT outbox_pending_owed,
    DROP CONSTRAINT outbox_times_finite,
    DROP CONSTRAINT outbox_done_dated,
    DROP CONSTRAINT outbox_undone_undated,
    DROP CONSTRAINT outbox_attempts_counted,
    DROP CONSTRAINT outbox_destination_name,
    DROP CONSTRAINT outbox_ordering_key_fit,
    DROP CONSTRAINT outbox_dedup_key_fit,
    DROP CONSTRAINT outbox_names_fit,
    DROP CONSTRAINT outbox_content_type_fit,
    DROP CONSTRAINT outbox_error_fits;

DROP TRIGGER outbox_dedup ON outbox;
DROP TRIGGER outbox_scheduled ON outbox;
DROP TRIGGER outbox_lane ON outbox;
DROP FUNCTION outbox_set_message_id();
DROP FUNCTION outbox_set_pending_since();
DROP FUNCTION outbox_enter_lane();
-- Triggers fire in the order of their names, and this one looks at what all the others have made of the
-- row: hence the name.
CREATE TRIGGER zz_outbox_insert BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION outbox_check();
-- AFTER, since a trigger before an update would lock each row once more. The cast is the check: this
-- condition is never true, and with the many rows of a worker's statement it costs no more than CHECKs.
CREATE TRIGGER outbox_update_state AFTER UPDATE ON outbox FOR EACH ROW
    WHEN (ROW(NEW.status, NEW.available_at, NEW.pending_since, NEW.lease_until, NEW.lease_owner, NEW.done_at,
              NEW.attempts, NEW.reclaims, NEW.lease_version, NEW.last_error)::outbox_state IS NULL)
    EXECUTE FUNCTION outbox_check();
CREATE TRIGGER outbox_update
    AFTER UPDATE OF created_at, destination, ordering_key, dedup_key, aggregate_type, aggregate_id, event_type,
                    content_type, headers, payload, body
    ON outbox FOR EACH ROW EXECUTE FUNCTION outbox_check();
COMMENT ON TRIGGER zz_outbox_insert ON outbox IS 'The rules for new messages, ids from dedup keys, and the order within lanes.';
COMMENT ON TRIGGER outbox_update ON outbox IS 'The rules for what producers write.';
COMMENT ON TRIGGER outbox_update_state ON outbox IS 'The rules for what workers write.';
