"""An SNS for tests, with an SQS that its topics can deliver to: PGOUTBOX_TEST_SNS_URL, or moto."""

from __future__ import annotations

import pytest

from tests.support.brokers.ladder import from_environment


@pytest.fixture(scope="session")
def sns_url(request: pytest.FixtureRequest) -> str:
    """The endpoint; without one of its own that of `sqs_url`."""
    endpoint: str = from_environment("SNS") or request.getfixturevalue("sqs_url")
    return endpoint
