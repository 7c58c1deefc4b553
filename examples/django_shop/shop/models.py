"""What the shop sells is beside the point: a total will do."""

from django.db import models


class Order(models.Model):
    """An order that was placed."""

    total = models.IntegerField()

    def __str__(self) -> str:
        return f"order {self.pk}"
