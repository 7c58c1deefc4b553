"""Redis Streams, by the connections of redis-py."""
