-- Whether vacuum keeps up with the outbox's tables, and how large they are.
--
-- Counts are PostgreSQL's estimates. Claims slow down with dead rows, so those of outbox should stay in
-- the thousands. If they do not, somebody holds vacuum back (horizon.sql), or autovacuum is busy elsewhere.
-- "options" are the settings that the migrations gave to the table.
--
-- Cost: no row of the outbox is read. The sizes wait for whoever has locked a table as a whole.
-- Needs: nothing.

SELECT s.relname AS "table", s.n_live_tup AS live_rows, s.n_dead_tup AS dead_rows,
       round(100.0 * s.n_dead_tup / nullif(s.n_live_tup + s.n_dead_tup, 0), 1) AS dead_percent,
       pg_size_pretty(pg_table_size(s.relid)) AS table_size,
       pg_size_pretty(pg_indexes_size(s.relid)) AS indexes_size,
       greatest(s.last_vacuum, s.last_autovacuum) AS last_vacuum, s.autovacuum_count AS autovacuums,
       greatest(s.last_analyze, s.last_autoanalyze) AS last_analyze,
       (SELECT v.phase FROM pg_stat_progress_vacuum v WHERE v.relid = s.relid LIMIT 1) AS vacuuming_now,
       c.reloptions AS options
  FROM pg_stat_user_tables s
  JOIN pg_class c ON c.oid = s.relid
 WHERE s.relid IN (to_regclass('outbox'), to_regclass('outbox_inbox'), to_regclass('outbox_workers'))
    OR s.relid IN (SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = to_regclass('outbox_archive'))
 ORDER BY s.n_dead_tup DESC, s.relname;
