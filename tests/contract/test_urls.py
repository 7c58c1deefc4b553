"""URLs that are none, for every kind of destination: refused at start, without repeating them."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import pytest

from pgoutbox.errors import InvalidDestination
from pgoutbox.publisher import PublisherOptions

OPTIONS = PublisherOptions(destination="odd")
SCHEMES = sorted(entry_points(group="pgoutbox.publishers"))
MALFORMED = (
    "",
    "  ",
    "hunter2",
    "{}:hunter2",
    "{}://",
    "{}://[::1/",
    "{}://[::1]hunter2/",
    "{}://host:port",
    "{}://host:hunter2/queue",
    "{}://host:99999/queue",
    "{}://host:0/queue",
    "{}://user:hunter2@",
    "{}://user:hunter2@[x]/",
    "{}://user:hunter2@[::1",
    "{}://user:hunter2@host:1:2/",
    "{}://user:hunter2/x@host/",
    "{}://user:hunter2?x@host/",
    "{}://user:hunter2#x@host/",
    "{}://user:hunter2@two words/",
    "{}://user:hunter2@host/Zürich",
    "{}://Zürich:hunter2@host/",
    "{}://user:hunter2@ho\N{CARE OF}st/",
    "{}://user:hunter2@host\ud800/",
    "{}://user:hunter2@a..b/queue",
    "{}://user:hunter2@./queue",
    "{}://user:hunter2@" + "x" * 64 + "/queue",
    "{}://host/\r\nhunter2",
    "{}://ho\0st/hunter2",
    "{}://host/hunter2\x7f",
)
WELL_FORMED = {
    # These need nothing behind their scheme.
    "noop": {"noop://"},
    "stdout": {"stdout://"},
    # Of a project that belongs to a domain: example.com:project.
    "pubsub": {
        "pubsub://host:port",
        "pubsub://host:hunter2/queue",
        "pubsub://host:99999/queue",
        "pubsub://host:0/queue",
    },
}


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
@pytest.mark.parametrize("url", MALFORMED, ids=ascii)
async def test_a_malformed_url_is_refused_at_start_without_repeating_it(
    scheme: EntryPoint, url: str
) -> None:
    whole = url.format(scheme.name)
    if whole in WELL_FORMED.get(scheme.name, ()):
        return
    with pytest.raises(InvalidDestination) as caught:
        await scheme.load()(whole, options=OPTIONS)
    assert "hunter2" not in repr(caught.value)
    assert caught.value.problem
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize("scheme", WELL_FORMED)
async def test_what_is_well_formed_for_some_is_opened(scheme: str) -> None:
    (factory,) = entry_points(group="pgoutbox.publishers", name=scheme)
    for url in WELL_FORMED[scheme]:
        publisher = await factory.load()(url, options=OPTIONS)
        await publisher.close()
