"""From the spec of an OutboxScaler to the law's policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgoutbox_operator.scaling import STALE_SECONDS, Budget, Fallback, Policy

if TYPE_CHECKING:
    from pgoutbox_operator.crd import ScalerSpec

TICK_AT_ZERO = 5.0
RECOVERED = 0.02


def policy_of(spec: ScalerSpec) -> Policy:
    """Seconds and shares out of whole seconds and percents."""
    tick = float(spec.scale_up.period_seconds)
    failing = spec.backpressure.failure_ratio_percent / 100
    return Policy(
        max_replicas=spec.max_replicas,
        min_replicas=spec.min_replicas,
        objective=float(spec.objective.max_age_seconds),
        utilization=spec.utilization.target_percent / 100,
        hysteresis=spec.utilization.hysteresis_percent / 100,
        seed_rate=None if spec.seed_rate_per_replica is None else float(spec.seed_rate_per_replica),
        startup=float(spec.expected_startup_seconds),
        tick=tick,
        tick_at_zero=min(TICK_AT_ZERO, tick),
        up_factor=1 + spec.scale_up.max_percent / 100,
        up_pods=spec.scale_up.max_pods,
        down_share=spec.scale_down.max_percent / 100,
        down_period=float(spec.scale_down.period_seconds),
        window=float(spec.scale_down.stabilization_window_seconds),
        idle=float(spec.idle_seconds),
        activation=spec.activation_replicas,
        paused=spec.paused,
        backpressure=spec.backpressure.mode,
        failing=failing,
        recovered=min(RECOVERED, failing / 2),
        stale=max(STALE_SECONDS, 3 * tick),
        budget=_budget(spec),
        fallback=Fallback(
            behavior=spec.fallback.behavior,
            replicas=spec.fallback.replicas or 1,
            after=float(spec.fallback.after_seconds),
        ),
    )


def _budget(spec: ScalerSpec) -> Budget | None:
    given = spec.connection_budget
    if given is None:
        return None
    return Budget(
        total=given.total,
        per_replica=given.per_replica,
        reserved=given.reserved,
        surge=given.surge,
    )
