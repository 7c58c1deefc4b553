"""The operator against KEDA and the HPA, in virtual time: ``python -m simulation``.

Discrete events and a seed: the operator's own `decide`, the worker's own retry and breaker code.
"""
