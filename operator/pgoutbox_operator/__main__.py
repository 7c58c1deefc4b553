"""``python -m pgoutbox_operator``."""

from pgoutbox_operator.cli import main

if __name__ == "__main__":
    main()
