"""Throughput against the SQL floor of the same run, and latency from commit to publish."""
