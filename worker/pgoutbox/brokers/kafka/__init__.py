"""Kafka, by librdkafka."""
