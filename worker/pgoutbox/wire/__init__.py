"""What a message looks like on the wire, the same for every broker. Pure."""
