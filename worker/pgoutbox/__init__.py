"""A transactional outbox for PostgreSQL."""
