"""What a package with a publisher of its own tests it with. Needs pytest and an asyncio plugin.

::

    class TestFax(PublisherContract):
        @pytest.fixture
        async def publisher(self) -> AsyncIterator[FaxPublisher]:
            publisher = await open_fax("fax://...", options=OPTIONS)
            yield publisher
            await publisher.close()

The tests are coroutines: run them with ``asyncio_mode = auto`` of pytest-asyncio, or mark the
class. The other fixtures of `PublisherContract` may be overridden to have more of the contract
checked.
"""

from pgoutbox.testing.calling import AnyPublisher, publish_one
from pgoutbox.testing.contract import SECRET, Arrivals, PublisherContract
from pgoutbox.testing.faults import OpenAt
from pgoutbox.testing.messages import PAYLOADS, TEXTS, make_message

__all__ = [
    "PAYLOADS",
    "SECRET",
    "TEXTS",
    "AnyPublisher",
    "Arrivals",
    "OpenAt",
    "PublisherContract",
    "make_message",
    "publish_one",
]
