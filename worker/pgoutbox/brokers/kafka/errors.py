"""What librdkafka's error codes mean for a message."""

# ruff: noqa: SLF001 - the client's own codes, as opposed to the broker's, begin with an underscore

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from pgoutbox.errors import (
    DestinationUnavailable,
    PermanentError,
    PublishError,
    RetryableError,
)

if TYPE_CHECKING:
    from pgoutbox.brokers import answers

Row = tuple[int, type[PublishError], str]

# What became of one record, by its delivery report or by `produce` itself. Permanent is only what
# nothing but the record can cause: its size.
CLIENT_ERRORS: tuple[Row, ...] = (
    (
        KafkaError.MSG_SIZE_TOO_LARGE,
        PermanentError,
        "the record is larger than the broker, the topic or the URL's message.max.bytes allows",
    ),
    (
        KafkaError.RECORD_LIST_TOO_LARGE,
        PermanentError,
        "the record is larger than a segment of the topic",
    ),
    # What the topic's settings, the broker or its clock may have to do with.
    (
        KafkaError.INVALID_MSG_SIZE,
        RetryableError,
        "the record's size is one that the broker does not take",
    ),
    (
        KafkaError.INVALID_TIMESTAMP,
        RetryableError,
        (
            "the topic does not take a record of that age; raise its"
            " message.timestamp.before.max.ms or after.max.ms, or set the database's clock"
        ),
    ),
    (
        KafkaError.INVALID_RECORD,
        RetryableError,
        "the broker takes the record for invalid; see the topic's settings and the broker's log",
    ),
    (
        KafkaError.TOPIC_EXCEPTION,
        RetryableError,
        "the topic's name is not allowed, or the topic is one of Kafka's own",
    ),
    (KafkaError._INVALID_ARG, RetryableError, "the client did not take the record"),
    # Somebody has to do something, and then it works.
    (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        RetryableError,
        "the topic does not exist; create it, or let the brokers create topics",
    ),
    (
        KafkaError._UNKNOWN_TOPIC,
        RetryableError,
        "the topic does not exist; create it, or let the brokers create topics",
    ),
    (KafkaError._UNKNOWN_PARTITION, RetryableError, "the topic's partition does not exist"),
    (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        DestinationUnavailable,
        "the user may not write to the topic; allow Write and Describe",
    ),
    (
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        DestinationUnavailable,
        "the user may not write idempotently; allow IdempotentWrite on the cluster",
    ),
    # The broker did not take it, or said nothing.
    (
        KafkaError.NOT_ENOUGH_REPLICAS,
        RetryableError,
        "too few replicas are in sync (min.insync.replicas)",
    ),
    (
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        RetryableError,
        "too few replicas were in sync when it was written (min.insync.replicas)",
    ),
    (KafkaError.LEADER_NOT_AVAILABLE, RetryableError, "the partition has no leader"),
    (KafkaError.NOT_LEADER_FOR_PARTITION, RetryableError, "the partition's leader has changed"),
    (KafkaError.REQUEST_TIMED_OUT, RetryableError, "the replicas did not confirm it in time"),
    (KafkaError.KAFKA_STORAGE_ERROR, RetryableError, "the broker's disk failed"),
    (
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        RetryableError,
        "the client's quota at the broker is used up",
    ),
    (
        KafkaError._INVALID_DIFFERENT_RECORD,
        RetryableError,
        "another record of the same request was invalid",
    ),
    (KafkaError._MSG_TIMED_OUT, RetryableError, "no answer in time"),
    (KafkaError._TIMED_OUT, RetryableError, "no answer in time"),
    (KafkaError._TRANSPORT, RetryableError, "the connection broke"),
    # The client gave it up.
    (
        KafkaError._QUEUE_FULL,
        DestinationUnavailable,
        "the client's buffer stayed full; nothing was sent",
    ),
    # It may have been sent before, and wait for another time.
    (KafkaError._PURGE_QUEUE, RetryableError, "the client was closed before the answer"),
    (KafkaError._PURGE_INFLIGHT, RetryableError, "the client was closed before the answer"),
)
# What `produce` raises that is no error of Kafka's.
PRODUCE_ERRORS: tuple[answers.Row, ...] = (
    (UnicodeEncodeError, PermanentError, "the message has text that is not Unicode"),
    (Exception, RetryableError, "the client did not take the record"),
)
BY_CODE = {code: (kind, words) for code, kind, words in CLIENT_ERRORS}

# Answers to a whole request, which may be about another record in it.
TOGETHER = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError._INVALID_DIFFERENT_RECORD,
    }
)
# Answers that a record gets which was never sent as well as one whose answer was lost.
SILENCE = frozenset({KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError._TRANSPORT})

# Why there is no connection, as the client tells beside the records.
TROUBLES = {
    KafkaError._AUTHENTICATION: (
        "the broker refused the credentials; check user, password and sasl.mechanism"
    ),
    KafkaError.SASL_AUTHENTICATION_FAILED: (
        "the broker refused the credentials; check user, password and sasl.mechanism"
    ),
    KafkaError.UNSUPPORTED_SASL_MECHANISM: ("the broker does not offer this sasl.mechanism"),
    KafkaError._SSL: "the TLS handshake failed; check security.protocol and the ssl. properties",
    KafkaError._RESOLVE: "the host name has no address",
    KafkaError._TRANSPORT: (
        "no connection could be established; check the address and security.protocol"
    ),
    KafkaError._TIMED_OUT: "connecting took too long",
}
# What only the client's words tell: the first that is in them.
HINTS = {
    "certificate verify failed": (
        "the broker's TLS certificate was not accepted; check ssl.ca.location and the host's name"
    ),
    "SSL_HANDSHAKE": (
        "the TLS handshake was broken off; is that a port for plain text? Check the port and"
        " security.protocol"
    ),
    "in state APIVERSION_QUERY": (
        "the broker hung up at the first words; is that a port for TLS? Check the port and"
        " security.protocol"
    ),
}
REFUSED_TOGETHER = "the broker refused it together with others"
NO_TROUBLE = "no broker was there to take it"


class RefusedTogether(RetryableError):  # noqa: N818 - what happened
    """The request that a record was in was refused; alone it may be taken."""


def is_fatal(error: KafkaError) -> bool:
    """Whether the client will take nothing any more."""
    return error.fatal() or error.code() == KafkaError._FATAL


def hint(words: str) -> str | None:
    """What the client's words say of a cause that has no code."""
    return next((meaning for sign, meaning in HINTS.items() if sign in words), None)


def trouble(error: KafkaError) -> str | None:
    """Why there is no connection, where the client says so beside the records."""
    return hint(error.str()) or TROUBLES.get(error.code())


def buffer_full(topic: str) -> PublishError:
    """What `produce` says by a BufferError."""
    return translated(KafkaError(KafkaError._QUEUE_FULL), topic, fixed=True)


def translated(error: KafkaError, topic: str, *, fixed: bool) -> PublishError:
    """What became of one record of ``topic``, without a word of the broker's.

    ``fixed``: the topic is the same for all messages, so its name is not this message's doing.
    """
    if is_fatal(error):
        return RetryableError("the client lost its place and is made anew")
    kind, words = BY_CODE.get(error.code(), (RetryableError, ""))
    text = f"topic {topic!r}: {words or f'it was not taken: {error.name()}'}"
    if error.code() == KafkaError.TOPIC_EXCEPTION and not fixed:
        return PermanentError(text)
    if error.code() == KafkaError.THROTTLING_QUOTA_EXCEEDED:
        return RetryableError(text, throttled=True)
    return kind(text)
