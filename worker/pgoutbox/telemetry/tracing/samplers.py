"""The samplers that `OTEL_TRACES_SAMPLER` may name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgoutbox.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "OTEL_TRACES_SAMPLER"
SAMPLERS = (
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
)


def sampler_problem(environ: Mapping[str, str]) -> Problem | None:
    """What is wrong with the name, if anything. The default holds then, as OpenTelemetry says."""
    named = environ.get(VARIABLE, "")
    if not named.strip() or named.lower() in SAMPLERS:
        return None
    return Problem(
        field=VARIABLE,
        rule="names no sampler that there is here, so the stored flag decides",
        value=named,
        advice=f"Choose {', '.join(SAMPLERS[:-1])} or {SAMPLERS[-1]}.",
    )
