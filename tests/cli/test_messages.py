"""What a command says of an error."""

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError

from refine import cli


def raise_while_tidying_up() -> None:
    """Raise what psycopg raises if Ctrl-C comes in the middle of a statement."""
    try:
        raise KeyboardInterrupt
    finally:
        raise psycopg.ProgrammingError("the connection is in use")


def test_ctrl_c_behind_a_drivers_error_is_an_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        try:
            raise_while_tidying_up()
        except psycopg.ProgrammingError as error:
            raise DBAPIError("SELECT 1", {}, error) from error

    monkeypatch.setattr(cli.core_dumps, "forbid", lambda: None)  # this process runs other tests
    monkeypatch.setattr(cli.refine, "main", interrupted)

    with pytest.raises(SystemExit) as exit_:
        cli.main([])

    assert (exit_.value.code, capsys.readouterr().err) == (1, "refine: interrupted\n")
