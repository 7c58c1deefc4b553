-- Who may do what. Six roles that nobody logs in with: grant them to those who do, as in
--     GRANT outbox_dispatcher TO shop_workers;
-- outbox_owner       owns everything here; those who migrate are its members
-- outbox_producer    inserts messages, and can neither read nor change any
-- outbox_dispatcher  the workers: they write how far a message has come, and never what it says
-- outbox_operator    counts and ages, for pgoutbox-operator and the exporter
-- outbox_desk        people who decide about dead letters; each needs a login, which the audit records
-- outbox_consumer    receipts of what was received, where consumers share this database
-- Not a migration: run it again after each, which `pgoutbox migrate` does by itself once outbox_owner owns
-- the tables. Roles belong to the whole server: several outboxes on it share these, and the rights are
-- those on each. Unqualified names: search_path is the schema that holds the tables.

-- Whoever makes a role without being a superuser is its member only if they say so.
DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['outbox_owner', 'outbox_producer', 'outbox_dispatcher', 'outbox_operator',
                                'outbox_desk', 'outbox_consumer'] LOOP
        -- Another database of the server may be at it as well.
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;
        END;
    END LOOP;
    IF NOT pg_has_role('outbox_owner', 'USAGE') THEN
        EXECUTE format('GRANT outbox_owner TO %I', current_user);
    END IF;
END $$;

-- The schema itself may be somebody else's, as public is: only what is missing is granted.
DO $$
DECLARE
    role text;
BEGIN
    -- PostgreSQL 14 lets everybody create in public, and so put a function of theirs in the way of one of ours,
    -- which works as the owner. Only the schema's owner can end that.
    IF has_schema_privilege('public', current_schema(), 'CREATE') THEN
        BEGIN
            EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM PUBLIC', current_schema());
        EXCEPTION WHEN insufficient_privilege THEN
            NULL;
        END;
    END IF;
    FOREACH role IN ARRAY ARRAY['outbox_owner', 'outbox_producer', 'outbox_dispatcher', 'outbox_operator',
                                'outbox_desk', 'outbox_consumer'] LOOP
        IF NOT has_schema_privilege(role, current_schema(), 'USAGE') THEN
            EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), role);
        END IF;
    END LOOP;
    IF NOT has_schema_privilege('outbox_owner', current_schema(), 'CREATE') THEN
        EXECUTE format('GRANT CREATE ON SCHEMA %I TO outbox_owner', current_schema());
    END IF;
END $$;

-- Everything becomes the owner's, days of the archive included; indexes, sequences and triggers follow their
-- tables. Only what is not yet: an ALTER waits for everybody who uses the table.
DO $$
DECLARE
    found record;
    patience CONSTANT timestamptz := clock_timestamp() + interval '5 seconds';
BEGIN
    IF (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'outbox'::regclass) <> 'outbox_owner' THEN
        -- Others use two of them in one transaction, in any order. Whoever waits for the second while this has
        -- the first is let pass long before the server calls it a deadlock.
        LOOP
            BEGIN
                SET LOCAL lock_timeout = '200ms';
                LOCK TABLE outbox, outbox_archive, outbox_workers, outbox_wakeup, outbox_inbox, outbox_audit;
                EXIT;
            EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
                IF clock_timestamp() > patience THEN
                    RAISE;
                END IF;
            END;
            PERFORM pg_sleep(0.1);
        END LOOP;
        SET LOCAL lock_timeout = '5s';
    END IF;
    FOR found IN
        SELECT c.oid::regclass AS name FROM pg_class c
         WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
           AND pg_get_userbyid(c.relowner) <> 'outbox_owner'
           AND (c.relname IN ('outbox', 'outbox_workers', 'outbox_wakeup', 'outbox_inbox', 'outbox_audit',
                              'outbox_archive', 'outbox_migrations')
                OR EXISTS (SELECT FROM pg_inherits i
                            WHERE i.inhrelid = c.oid AND i.inhparent = 'outbox_archive'::regclass))
    LOOP
        EXECUTE format('ALTER TABLE %s OWNER TO outbox_owner', found.name);
    END LOOP;
    FOR found IN
        SELECT p.oid::regprocedure AS name, pg_get_userbyid(p.proowner) <> 'outbox_owner' AS foreign_owned
          FROM pg_proc p
         WHERE p.pronamespace = current_schema()::regnamespace
           AND p.proname IN ('outbox_message_id', 'outbox_notify', 'outbox_enqueue', 'outbox_stats', 'outbox_horizon',
                             'outbox_archive_partitions', 'outbox_archive_prepare', 'outbox_archive_expire',
                             'outbox_aggregate_key', 'outbox_check', 'outbox_discard')
    LOOP
        IF found.foreign_owned THEN
            EXECUTE format('ALTER FUNCTION %s OWNER TO outbox_owner', found.name);
        END IF;
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', found.name);
    END LOOP;
    FOR found IN
        SELECT t.oid::regtype AS name, t.typtype FROM pg_type t
         WHERE t.typnamespace = current_schema()::regnamespace AND t.typname IN ('outbox_state', 'outbox_state_columns')
           AND pg_get_userbyid(t.typowner) <> 'outbox_owner'
    LOOP
        EXECUTE format('ALTER %s %s OWNER TO outbox_owner',
                       CASE found.typtype WHEN 'd' THEN 'DOMAIN' ELSE 'TYPE' END, found.name);
    END LOOP;
END $$;
-- What the next migration makes is nobody's either until it is granted.
ALTER DEFAULT PRIVILEGES FOR ROLE outbox_owner REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
REVOKE ALL ON outbox, outbox_workers, outbox_wakeup, outbox_inbox, outbox_audit, outbox_archive, outbox_migrations
  FROM PUBLIC;

-- Of other sessions outbox_horizon() tells state and start only if its owner may see these. It works without.
DO $$
BEGIN
    IF NOT pg_has_role('outbox_owner', 'pg_read_all_stats', 'USAGE') THEN
        GRANT pg_read_all_stats TO outbox_owner;
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    NULL;
END $$;

-- The columns that say what a message is, and none that say how far it has come. Neither SELECT nor any right
-- on the sequence: ids are made by the server, and triggers work as the owner.
GRANT INSERT (message_id, aggregate_type, aggregate_id, event_type, destination, ordering_key, payload, body,
              content_type, headers, dedup_key, available_at) ON outbox TO outbox_producer;
GRANT EXECUTE ON FUNCTION
    outbox_enqueue(text, text, text, jsonb, bytea, text, text, jsonb, text, text, uuid, timestamptz, interval, boolean),
    outbox_message_id(text), outbox_aggregate_key(text, text) TO outbox_producer;

-- DELETE is for what was delivered: retention removes it.
GRANT SELECT, DELETE, UPDATE (status, attempts, reclaims, available_at, pending_since, lease_owner, lease_until,
                              lease_version, last_error, done_at) ON outbox TO outbox_dispatcher;
GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_workers TO outbox_dispatcher;
GRANT SELECT, UPDATE (wanted, changed_at) ON outbox_wakeup TO outbox_dispatcher;
GRANT SELECT ON outbox_migrations TO outbox_dispatcher;
GRANT INSERT ON outbox_archive TO outbox_dispatcher;
GRANT EXECUTE ON FUNCTION outbox_stats(integer), outbox_horizon(), outbox_archive_partitions(),
    outbox_archive_prepare(integer), outbox_archive_expire(interval) TO outbox_dispatcher;

GRANT EXECUTE ON FUNCTION outbox_stats(integer), outbox_horizon() TO outbox_operator;

-- A decision changes a message's state, and its ordering key where it leaves its lane. Who decided is a default
-- of the audit, which nobody may write. What is dead is deleted by outbox_discard alone, which audits it.
REVOKE DELETE ON outbox FROM outbox_desk;
GRANT SELECT, UPDATE (status, attempts, reclaims, available_at, pending_since, lease_version, done_at,
                              ordering_key) ON outbox TO outbox_desk;
GRANT SELECT, INSERT (action, reason, outbox_id, message_id, destination, details) ON outbox_audit TO outbox_desk;
GRANT SELECT ON outbox_archive, outbox_migrations TO outbox_desk;
GRANT EXECUTE ON FUNCTION outbox_stats(integer), outbox_horizon(), outbox_message_id(text),
    outbox_discard(bigint[], text) TO outbox_desk;

-- Receipts are never updated, but FOR UPDATE, by which they are pruned, wants the right to.
GRANT SELECT, INSERT, DELETE, UPDATE (received_at) ON outbox_inbox TO outbox_consumer;
