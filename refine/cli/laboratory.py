"""Commands of the package ``bench``, which stands beside ``refine`` in the repository alone."""

import sys
from importlib import import_module
from pathlib import Path

import click

_ROOT = Path(__file__).parent.parent.parent
_COMMANDS = ("bench", "evaluate")


class WithLaboratory(click.Group):
    """A group that also has these commands, and loads them only where they are asked for."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of all commands that are there."""
        return sorted([*self.commands, *(_COMMANDS if _is_there() else ())])

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return a command; a failure for one that is not installed."""
        return _loaded(name) if name in _COMMANDS else super().get_command(context, name)


def _is_there() -> bool:
    return (_ROOT / "bench" / "commands.py").is_file()


def _loaded(name: str) -> click.Command:
    if not _is_there():
        raise click.ClickException(
            f"`refine {name}` is not installed: it is part of Refine's repository; run it there"
        )
    if str(_ROOT) not in sys.path:
        sys.path.insert(0, str(_ROOT))
    command: click.Command = import_module("bench.commands").COMMANDS[name]
    return command
