"""The command: ``refine``, and ``python -m refine`` where the project itself is not installed."""

import gc
from importlib import import_module


def main() -> None:
    """Run the command, loaded without the garbage collector: a quarter faster."""
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
