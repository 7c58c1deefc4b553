"""Events into spans: claim, publish and what became of it, sent by OTLP over HTTP.

Where no spans are wanted only `setup`, `context` and `counts` are imported: the others need the
extra `otel`.
"""
