"""Gives a Deployment of workers as many pods as its outbox needs."""
