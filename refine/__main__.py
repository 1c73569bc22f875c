"""The command: ``refine``, and ``python -m refine`` where the project itself is not installed."""

import gc
from importlib import import_module


def main() -> None:
    """Load all commands, and run the one that was asked for.

    Loading takes a quarter less time without the garbage collector: next to nothing that modules
    make is garbage.
    """
    gc.disable()
    try:
        commands = import_module("refine.cli")
    except KeyboardInterrupt:  # loading takes seconds, and the commands could not say it yet
        raise SystemExit("refine: interrupted") from None
    gc.freeze()
    gc.enable()
    commands.main()


if __name__ == "__main__":
    main()
