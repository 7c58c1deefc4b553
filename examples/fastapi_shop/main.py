"""A shop: whoever places an order gets an answer, and shipping gets to hear of it.

One service plays both parts here. In earnest they are two, each with a database of its own.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated
from uuid import UUID

from fastapi import FastAPI, Header
from pydantic import BaseModel, Field
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pgoutbox import Message
from pgoutbox.producer.sqlalchemy import enqueue

new_session = async_sessionmaker[AsyncSession](expire_on_commit=False)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """An engine for as long as the application runs."""
    engine = create_async_engine(os.environ["SHOP_DATABASE_URL"])
    new_session.configure(bind=engine)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


app = FastAPI(title="A shop", lifespan=lifespan)


class Base(DeclarativeBase):
    """The tables of the shop and of shipping."""


class Order(Base):
    """What the shop knows."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    quantity: Mapped[int]


class NewOrder(BaseModel):
    """What a customer sends."""

    item: str = Field(min_length=1, max_length=100)
    quantity: int = Field(ge=1)


@app.post("/orders", status_code=201)
async def place_order(new: NewOrder) -> dict[str, int]:
    """The order and its message are committed together, and before the customer is answered."""
    async with new_session.begin() as session:
        order = Order(item=new.item, quantity=new.quantity)
        session.add(order)
        await session.flush()  # gives the order its id
        message = Message(
            aggregate_type="order",
            aggregate_id=str(order.id),
            event_type="OrderPlaced",
            payload={"order_id": order.id, "item": new.item, "quantity": new.quantity},
        )
        await enqueue(session, message)
    return {"id": order.id}


class Shipment(Base):
    """What shipping knows."""

    __tablename__ = "shipments"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int]
    item: Mapped[str]
    quantity: Mapped[int]


class OrderPlaced(BaseModel):
    """The payload: all that shipping has to know, so that it need not ask the shop."""

    order_id: int
    item: str
    quantity: int


# A repeat waits for the delivery that it repeats, and then inserts nothing.
RECEIPT = text(
    "INSERT INTO outbox_inbox (consumer, message_id) VALUES ('shipping', :message_id)"
    " ON CONFLICT DO NOTHING"
)


@app.post("/shipping/events", status_code=204)
async def ship(placed: OrderPlaced, webhook_id: Annotated[UUID, Header()]) -> None:
    """The receipt and the shipment are committed together, so a repeat ships nothing."""
    async with new_session.begin() as session:
        connection = await session.connection()
        received = await connection.execute(RECEIPT, {"message_id": webhook_id})
        if received.rowcount == 1:
            session.add(Shipment(**placed.model_dump()))
