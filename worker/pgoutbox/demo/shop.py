"""The producer: a shop that puts an order and its message into the same transaction."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg

from pgoutbox.message import Message
from pgoutbox.producer.enqueue import enqueue

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

WITHOUT_ADDRESS = 10
"""The number of the one order that the consumer will refuse."""
DECLINED_EVERY = 15
"""Every so many orders the payment is declined, and the transaction rolled back."""
PATIENCE = 10.0

INSERT_ORDER = b"INSERT INTO orders (id, article, address) VALUES (%s, %s, %s)"


class Shop(threading.Thread):
    """Sells at a steady rate in a thread of its own, and keeps books outside the database."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], rate: float) -> None:
        super().__init__(name="shop", daemon=True)
        self.committed: set[UUID] = set()
        self.rolled_back: set[UUID] = set()
        self.without_address: set[UUID] = set()
        self.failure: psycopg.Error | None = None
        self._connect = connect
        self._pause = 1 / rate
        self._closed = threading.Event()

    def run(self) -> None:
        """Sell until closed; a shop that falls behind does not pause until it has caught up."""
        try:
            with self._connect() as conn:
                number, due = 0, time.monotonic()
                while not self._closed.wait(max(0.0, due - time.monotonic())):
                    number += 1
                    self._sell(conn, number)
                    due += self._pause
        except psycopg.Error as error:
            self.failure = error

    def close(self) -> None:
        """Sell nothing more, and return when the last transaction has ended."""
        self._closed.set()
        if self.is_alive():
            self.join(PATIENCE)

    def _sell(self, conn: psycopg.Connection[Any], number: int) -> None:
        address = None if number == WITHOUT_ADDRESS else f"{number} Harbour Street"
        declined = number % DECLINED_EVERY == 0
        with conn.transaction():
            conn.execute(INSERT_ORDER, [number, "a pair of boots", address])
            message_id = enqueue(conn, _placed(number, address))
            if declined:
                # Written down before the end of the transaction, so that not even a moment is
                # left in which a delivery would go unnoticed.
                self.rolled_back.add(message_id)
                raise psycopg.Rollback
        if declined:
            return
        self.committed.add(message_id)
        if address is None:
            self.without_address.add(message_id)


def _placed(number: int, address: str | None) -> Message:
    return Message(
        aggregate_type="order",
        aggregate_id=str(number),
        event_type="placed",
        payload={"order": number, "address": address},
    )
