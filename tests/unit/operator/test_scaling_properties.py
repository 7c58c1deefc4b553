from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings, strategies as st

from pgoutbox_operator.scaling import Decision, Policy, Reason, Sample, decide
from tests.support.scaling import Look, Story

LOOKS = st.builds(
    Look,
    ready=st.integers(0, 5000),
    age=st.floats(0, 300),
    finished=st.integers(0, 60),
    failed=st.sampled_from([0, 0, 0, 1, 10, 60]),
    busy=st.floats(0, 1),
    away=st.sampled_from([False, False, False, True]),
)
GOOD = st.builds(
    Look,
    ready=st.integers(0, 5000),
    age=st.floats(0, 300),
    finished=st.integers(0, 60),
    busy=st.floats(0, 1),
)
POLICIES = st.builds(
    Policy,
    min_replicas=st.integers(0, 5),
    max_replicas=st.integers(5, 40),
    objective=st.sampled_from([5.0, 30.0, 300.0]),
    startup=st.sampled_from([2.0, 20.0, 90.0]),
    seed_rate=st.sampled_from([None, 0.1, 2.0, 50.0]),
    knee=st.booleans(),
)


def lived(policy: Policy, replicas: int, looks: list[Look]) -> Story:
    story = Story(policy=policy, replicas=min(replicas, policy.max_replicas))
    for look in looks:
        story.tick(look)
    return story


def next_of(story: Story, sample: Sample) -> Decision:
    return decide(story.state, sample, story.now, policy=story.policy)[1]


@given(policy=POLICIES, replicas=st.integers(0, 40), looks=st.lists(LOOKS, min_size=1, max_size=40))
def test_replicas_are_never_outside_the_bounds(
    policy: Policy, replicas: int, looks: list[Look]
) -> None:
    story = lived(policy, replicas, looks)
    known = [
        decision for look, decision in zip(looks, story.decisions, strict=True) if not look.away
    ]
    assert all(policy.min_replicas <= d.replicas <= policy.max_replicas for d in known)
    assert all(d.replicas <= policy.max_replicas for d in story.decisions)


@given(policy=POLICIES, replicas=st.integers(0, 40), looks=st.lists(LOOKS, max_size=30))
def test_an_error_changes_nothing(policy: Policy, replicas: int, looks: list[Look]) -> None:
    story = lived(policy, replicas, looks)
    before = story.replicas
    decision = story.tick(Look(away=True))
    assert (decision.replicas, decision.reason) == (before, Reason.METRICS_UNAVAILABLE)


@given(
    policy=POLICIES,
    looks=st.lists(GOOD, min_size=1, max_size=30),
    look=GOOD,
    failed=st.integers(10, 100),
)
def test_no_replica_is_added_while_the_destinations_fail(
    policy: Policy, looks: list[Look], look: Look, failed: int
) -> None:
    story = lived(replace(policy, min_replicas=1), 3, looks)
    before = story.replicas
    failing = replace(look, finished=min(look.finished, failed), failed=failed)
    assert story.tick(failing).replicas <= before


@settings(max_examples=200)
@given(
    looks=st.lists(GOOD, min_size=2, max_size=10),
    more=st.integers(0, 5000),
    older=st.floats(0, 300),
    policy=POLICIES,
)
def test_a_greater_or_older_backlog_never_brings_fewer_replicas(
    looks: list[Look], more: int, older: float, policy: Policy
) -> None:
    # Trials at the database's knee are meant to be an exception.
    story = lived(replace(policy, knee=False), 3, looks[:-1])
    sample = story.sample(replace(looks[-1], finished=20))
    outbox = sample.outbox
    assert outbox is not None
    worse = replace(
        outbox,
        ready=outbox.ready + more,
        undelivered=outbox.undelivered + more,
        oldest_ready_age=outbox.oldest_ready_age + older,
    )
    # How full a replica is, is learned from the age: the same on both sides of the comparison.
    if (outbox.oldest_ready_age > 10.0) != (worse.oldest_ready_age > 10.0):
        worse = replace(worse, oldest_ready_age=outbox.oldest_ready_age)
    easy, hard = next_of(story, sample), next_of(story, replace(sample, outbox=worse))
    assert hard.replicas >= easy.replicas


@given(looks=st.lists(GOOD, min_size=2, max_size=60), policy=POLICIES)
def test_no_replica_goes_within_a_window_of_one_that_came(
    looks: list[Look], policy: Policy
) -> None:
    story = lived(replace(policy, knee=False, min_replicas=1), 3, looks)
    added_at = None
    for tick, decision in enumerate(story.decisions):
        now = 15.0 * tick
        if decision.replicas > decision.previous:
            added_at = now
        elif decision.replicas < decision.previous and added_at is not None:
            assert now - added_at >= policy.window


@given(policy=POLICIES, looks=st.lists(LOOKS, max_size=20), look=LOOKS)
def test_the_same_state_and_sample_make_the_same_decision(
    policy: Policy, looks: list[Look], look: Look
) -> None:
    story = lived(policy, 3, looks)
    sample = story.sample(look)
    first = decide(story.state, sample, story.now, policy=policy)
    assert decide(story.state, sample, story.now, policy=policy) == first
