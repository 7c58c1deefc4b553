"""Whoever decides about the replicas."""
