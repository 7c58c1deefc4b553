"""Events into spans: claim, publish and what became of it, sent by OTLP over HTTP.

Nothing here is imported but where spans are wanted, except `setup` and `context`.
"""
