"""The servers that the publishers' tests share, one for the whole run."""

from tests.support.brokers.aws import aws_credentials
from tests.support.brokers.kafka import kafka_url
from tests.support.brokers.nats import nats_url
from tests.support.brokers.pubsub import pubsub_url
from tests.support.brokers.rabbitmq import rabbitmq_url
from tests.support.brokers.redis import redis_url
from tests.support.brokers.sns import sns_url
from tests.support.brokers.sqs import sqs_url

__all__ = [
    "aws_credentials",
    "kafka_url",
    "nats_url",
    "pubsub_url",
    "rabbitmq_url",
    "redis_url",
    "sns_url",
    "sqs_url",
]
