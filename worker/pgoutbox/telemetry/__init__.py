"""One file per sink; each is an observer of `pgoutbox.events`."""
