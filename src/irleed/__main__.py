"""``python -m irleed`` is the command `irleed`."""

from irleed.cli import main

main()
