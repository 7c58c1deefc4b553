"""A shop, a consumer, three workers and two deaths, in half a minute."""
