"""``python -m refine``: the command, also where the project itself is not installed."""

from refine.cli import main

main()
