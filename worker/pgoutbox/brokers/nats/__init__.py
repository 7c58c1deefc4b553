"""NATS JetStream, by nats-py."""
