"""How fast: a worker's throughput against the SQL floor of the same run, and its latency.

Absolute figures of a machine say little. The ratio to the floor, which runs the product's own
claim and finalize statements without a worker, carries over.
"""
