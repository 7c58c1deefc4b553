"""``python -m pgoutbox``."""

from pgoutbox.cli import main

main()
