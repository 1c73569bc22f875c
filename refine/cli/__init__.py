"""The command ``refine``. Commands call models and jobs, as views do."""

import logging
import sys
from importlib import import_module

import click
from sqlalchemy.exc import DBAPIError

from refine import __version__, core_dumps
from refine.cli.accounts import account, lock, token, unlock, user
from refine.cli.agents import agent
from refine.cli.audit import audit
from refine.cli.backups import backup, restore
from refine.cli.database import database, keys
from refine.cli.doctor import doctor
from refine.cli.mcp import mcp
from refine.cli.memories import memory
from refine.cli.running import clock, reflect, run, sweep, tick, worker
from refine.cli.sessions import session, undo
from refine.cli.transfer import export, import_
from refine.cli.up import up
from refine.cli.web import web
from refine.cli.webhooks import webhook
from refine.errors import RefineError
from refine.models import SessionAlreadyLive
from refine.outages import TROUBLES, connection_fault, database_trouble
from refine.places import ROOT

DONE, FAILED, WRONG_USAGE = 0, 1, 2

# Commands of the package ``bench``, which nothing else in ``refine`` imports.
_BENCH_COMMANDS = ("bench", "evaluate")


class _WithBench(click.Group):
    """Also has the commands of ``bench``, and loads them only where they are asked for."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted([*self.commands, *_BENCH_COMMANDS])

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _BENCH_COMMANDS:
            return super().get_command(context, name)
        sys.path.insert(0, str(ROOT))
        command: click.Command = import_module("bench.commands").COMMANDS[name]
        return command


@click.group(
    cls=_WithBench,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="refine")
def refine() -> None:
    """AI agents tidy their own long-term memory, in sessions that cannot destroy it.

    Start with `refine up`, which starts everything and prints the URL. Then try `refine agent list`
    and `refine run NAME`.

    Settings come from the environment (DATABASE_URL, REDIS_URL, OPENROUTER_API_KEY, ...; listed in
    docs/operations.md). Exit codes: 0 done, 1 failed, 2 wrong usage. Lists take --json. How your
    shell completes commands is in docs/guide.md.
    """


for command in (
    *(up, run, reflect, sweep, session, undo, web, worker, clock, tick, doctor),
    *(import_, export, mcp, memory, audit, account, user, agent),
    *(lock, unlock, token, webhook, keys, database, backup, restore),
):
    refine.add_command(command)


def main(arguments: list[str] | None = None) -> None:
    """Run a command; print one line if it fails, and exit with 0, 1 or 2."""
    core_dumps.forbid()
    try:
        code = refine.main(arguments, prog_name="refine", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(WRONG_USAGE)
    except Exception as error:
        click.echo(f"refine: {_message_of(error)}", err=True)
        sys.exit(WRONG_USAGE if isinstance(error, click.UsageError) else FAILED)
    sys.exit(code if isinstance(code, int) else DONE)


def _message_of(error: Exception) -> str:
    if _was_interrupted(error):
        return "interrupted"
    match error:
        case click.UsageError():
            command = error.ctx.command_path if error.ctx is not None else "refine"
            message = " ".join(error.format_message().split())  # choices are on separate lines
            return f"{message} (see `{command} --help`)"
        case click.ClickException():
            return error.format_message()
        case SessionAlreadyLive():
            return f"{error}; `refine worker --burst` runs all queued sessions"
        case RefineError():
            return str(error)
        case UnicodeEncodeError() if error.encoding != "utf-8":
            return f"the output cannot be written in {error.encoding}; set PYTHONIOENCODING=utf-8"
        case UnicodeError():
            return "an argument or the input is not valid UTF-8"
        case OSError() if error.strerror:  # a full disk, a folder of somebody else
            return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    # the message of another error may quote content; DEBUG logs it with the traceback
    logging.getLogger("refine").debug("fault", exc_info=error)
    if isinstance(error, DBAPIError):
        return _advice_on(error)
    return f"internal error ({type(error).__name__}); set REFINE_LOG_LEVEL=DEBUG for details"


def _was_interrupted(error: BaseException | None) -> bool:
    """Tell whether Ctrl-C caused the error: a driver that cleans up may raise its own."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _advice_on(error: DBAPIError) -> str:
    match database_trouble(error):
        case "away":
            return str(connection_fault(error))
        case "busy" | "full" as trouble:
            return f"the database is {trouble}. {TROUBLES[trouble]}"
    if getattr(error.orig, "sqlstate", None) == "42501":
        return "the database role may not do that; see `refine db roles --help`"
    return f"the database reported an error: {error.args[0]}"
