"""The alerts, by what they look at.

What the table holds may be told by two exporters at once while one takes over from the other, so
it is asked for with ``max``. What workers did is summed, whichever pods are left of them. Labels
that somebody does not have (``namespace`` outside Kubernetes, ``database`` with one of them) are
empty, and do no harm.
"""
