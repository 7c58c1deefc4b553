"""Placing an order: the row and its message, in one atomic block."""

import json

from django.db import transaction
from django.http import HttpRequest, JsonResponse

from pgoutbox import Message
from pgoutbox.producer.django import enqueue

from .models import Order


def place(request: HttpRequest) -> JsonResponse:
    """``POST {"total": 42}``. Answers with the order's number and the message's id."""
    total = int(json.loads(request.body)["total"])
    with transaction.atomic():
        order = Order.objects.create(total=total)
        message_id = enqueue(
            Message(
                aggregate_type="order",
                aggregate_id=str(order.pk),
                event_type="OrderPlaced",
                payload={"id": order.pk, "total": total},
            ),
            beside=order,
        )
    return JsonResponse({"order": order.pk, "message": message_id}, status=201)
