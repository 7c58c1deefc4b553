"""A Django app that keeps the outbox's tables in step with ``manage.py migrate``.

Add ``"pgoutbox.django"`` to INSTALLED_APPS. Enqueue with `pgoutbox.producer.django`.
"""
