"""An SQS for tests: PGOUTBOX_TEST_SQS_URL, or moto."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.brokers import aws

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def sqs_url() -> Iterator[str]:
    """The endpoint, as in ``http://127.0.0.1:5000``."""
    with aws.server("SQS") as endpoint:
        yield endpoint
