"""One file per kind of destination, each an adapter behind `pgoutbox.publisher.Publisher`."""
