import io
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from refine import supervisor
from refine.embedded import socket_dir
from refine.errors import SettingsError
from refine.supervisor import read_procfile, supervise
from tests.commands import is_alive

from .processes import Script, eventually, processes_of

pytestmark = pytest.mark.slow

Start = Callable[..., Script]

IGNORES_SIGTERM = "sh -c \"trap '' TERM; echo deaf; while :; do sleep 1; done\""


@pytest.fixture
def procfile(tmp_path: Path) -> Callable[..., Path]:
    """Write a Procfile with these processes."""

    def write(**commands: str) -> Path:
        path = tmp_path / "Procfile"
        path.write_text("".join(f"{name}: {command}\n" for name, command in commands.items()))
        return path

    return write


def assert_all_gone(tmp_path: Path) -> None:
    """Assert it without waiting: the supervisor must not end before its processes."""
    assert processes_of(tmp_path) == []


def pid_of(folder: Path, server: str) -> int:
    pid_file = {"postgres": "postmaster.pid", "valkey": "valkey.pid"}[server]
    return int((folder / server / pid_file).read_text().split("\n")[0])


class TestProcfile:
    def test_keeps_its_order(self, procfile: Callable[..., Path]) -> None:
        path = procfile(web="gunicorn app:app", worker="rq worker")

        assert list(read_procfile(path).items()) == [
            ("web", "gunicorn app:app"),
            ("worker", "rq worker"),
        ]

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            ("", "defines no process; each line is `name: command`"),
            ("# nothing\n", "defines no process"),
            ("web gunicorn\n", "defines no process"),
            ("web: a\nweb: b\n", "defines two processes with the same name"),
        ],
    )
    def test_a_procfile_must_be_valid(self, tmp_path: Path, text: str, fault: str) -> None:
        (tmp_path / "Procfile").write_text(text)

        with pytest.raises(SettingsError, match=f"Procfile {fault}"):
            read_procfile(tmp_path / "Procfile")

    def test_a_procfile_must_exist(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsError, match="No such file"):
            read_procfile(tmp_path / "Procfile")


class TestSignals:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    def test_stop_everything_with_exit_status_0(
        self, script: Start, procfile: Callable[..., Path], tmp_path: Path, number: signal.Signals
    ) -> None:
        run = script("run_procfile", procfile(web="sleep 60", worker="sleep 60"), 10)
        run.said("all started")

        run.send_signal(number)

        assert run.wait(5) == 0
        assert_all_gone(tmp_path)
        run.said(f"{number.name}: stopping")

    def test_stop_servers_after_the_processes(
        self, script: Start, procfile: Callable[..., Path], tmp_path: Path, used_dir: Path
    ) -> None:
        socket = socket_dir(used_dir) / "valkey.sock"
        says = f"sh -c \"trap 'sleep 0.3; ls {socket}; exit' TERM; echo up; sleep 60 & wait\""
        run = script("run_procfile", procfile(web=says), 10, used_dir)
        run.said("| up")

        run.send_signal(signal.SIGTERM)

        assert run.said("valkey.sock").startswith("web    | ")
        assert run.wait(5) == 0
        assert_all_gone(tmp_path)

    def test_kill_a_process_that_ignores_sigterm_after_the_grace_period(
        self, script: Start, procfile: Callable[..., Path], tmp_path: Path
    ) -> None:
        run = script("run_procfile", procfile(web="sleep 60", deaf=IGNORES_SIGTERM), 0.5)
        run.said("| deaf")
        began = time.monotonic()

        run.send_signal(signal.SIGTERM)

        assert run.wait(5) == 0
        assert 0.5 <= time.monotonic() - began < 2
        assert_all_gone(tmp_path)
        run.said("killing deaf")

    def test_second_ctrl_c_kills_at_once(
        self, script: Start, procfile: Callable[..., Path], tmp_path: Path
    ) -> None:
        run = script("run_procfile", procfile(deaf=IGNORES_SIGTERM), 60)
        run.said("| deaf")
        run.send_signal(signal.SIGINT)
        run.said("SIGINT: stopping")

        run.send_signal(signal.SIGINT)

        assert run.wait(5) == 0
        assert_all_gone(tmp_path)

    def test_before_the_first_process_are_not_lost(self, tmp_path: Path) -> None:
        class Commands(dict[str, str]):
            def items(self) -> object:  # type: ignore[override]
                os.kill(os.getpid(), signal.SIGTERM)
                return super().items()

        began = time.monotonic()

        status = supervise(
            Commands(web="sleep 60"),
            environ=os.environ,
            cwd=tmp_path,
            servers={},
            output=io.StringIO(),
        )

        assert status == 0
        assert time.monotonic() - began < 2

    def test_work_if_ignored_by_the_parent_and_are_restored(self, tmp_path: Path) -> None:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            status = supervise(
                {"web": "sleep 60"},
                environ=os.environ,
                cwd=tmp_path,
                servers={},
                on_started=lambda: os.kill(os.getpid(), signal.SIGINT),
                output=io.StringIO(),
            )
            assert status == 0
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        finally:
            signal.signal(signal.SIGINT, before)


class TestEndings:
    @pytest.mark.parametrize(
        ("command", "message"),
        [
            ("sh -c 'exit 3'", "worker ended with exit status 3"),
            ("true", "worker ended with exit status 0"),
            ("/no/such/command", "worker ended with exit status 127"),
        ],
    )
    def test_a_process_that_cannot_start_stops_everything_with_exit_status_1(
        self,
        script: Start,
        procfile: Callable[..., Path],
        tmp_path: Path,
        command: str,
        message: str,
    ) -> None:
        run = script("run_procfile", procfile(web="sleep 60", worker=command), 10)

        assert run.wait(5) == 1
        assert_all_gone(tmp_path)
        run.said(f"refine | {message}; stopping everything")

    @pytest.mark.parametrize("server", ["postgres", "valkey"])
    def test_a_server_that_dies_stops_everything_with_exit_status_1(
        self,
        script: Start,
        procfile: Callable[..., Path],
        tmp_path: Path,
        used_dir: Path,
        server: str,
    ) -> None:
        run = script("run_procfile", procfile(web="sleep 60"), 10, used_dir)
        run.said("all started")

        os.kill(pid_of(used_dir, server), signal.SIGKILL)

        assert run.wait(10) == 1
        run.said(f"embedded {server} was killed by SIGKILL")
        eventually(lambda: not processes_of(tmp_path), seconds=2)

    def test_leftovers_in_a_process_group_are_killed(
        self, script: Start, procfile: Callable[..., Path], tmp_path: Path
    ) -> None:
        run = script("run_procfile", procfile(web="sh -c 'sleep 60 & echo up; sleep 0.1'"), 10)

        assert run.wait(5) == 1
        eventually(lambda: not processes_of(tmp_path), seconds=2)

    def test_a_killed_supervisor_leaves_nothing_running(
        self, script: Start, procfile: Callable[..., Path], tmp_path: Path, used_dir: Path
    ) -> None:
        run = script("run_procfile", procfile(web="sleep 60"), 10, used_dir)
        run.said("all started")

        run.kill()

        eventually(lambda: not processes_of(tmp_path), seconds=5)

    def test_an_error_after_the_start_ends_the_processes(self, tmp_path: Path) -> None:
        def fail() -> None:
            raise RuntimeError("from on_started")

        with pytest.raises(RuntimeError, match="from on_started"):
            supervise(
                {"web": "sleep 60"},
                environ=os.environ,
                cwd=tmp_path,
                servers={},
                on_started=fail,
                output=io.StringIO(),
            )

        assert_all_gone(tmp_path)


class TestStartingAgain:
    def test_a_killed_process_is_started_again_after_pauses_that_grow(
        self, script: Start, procfile: Callable[..., Path], tmp_path: Path
    ) -> None:
        dies = "sh -c 'echo working; kill -9 $$'"
        run = script("run_procfile", procfile(web="sleep 60", worker=dies), 10)

        for pause in (1, 2):
            run.said("worker | working")
            run.said(f"refine | worker was killed by SIGKILL; starting it again in {pause} s")

        run.said("worker | working")
        run.send_signal(signal.SIGTERM)
        assert run.wait(5) == 0
        assert_all_gone(tmp_path)

    def test_the_others_run_on_meanwhile(
        self, script: Start, procfile: Callable[..., Path], tmp_path: Path
    ) -> None:
        run = script(
            "run_procfile",
            procfile(
                web="sh -c 'while :; do echo as $$; sleep 0.3; done'",
                worker="sh -c 'echo working; sleep 0.2; kill -9 $$'",
            ),
            10,
        )
        before = run.said("web    | as")

        run.said("starting it again")
        run.said("worker | working")

        assert run.said("web    | as") == before

    def test_processes_left_in_its_group_end_first(
        self, script: Start, procfile: Callable[..., Path], tmp_path: Path
    ) -> None:
        leaves = "sh -c 'sleep 61 & echo left $!; kill -9 $$'"
        run = script("run_procfile", procfile(worker=leaves), 10)
        left = int(run.said("| left").split()[-1])

        run.said("starting it again in 1 s")

        eventually(lambda: not is_alive(left), seconds=0.9)

    def test_a_process_that_ends_by_itself_later_is_started_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(supervisor, "_STARTING_SECONDS", 0)
        output = _Ending("starting it again in 2 s")

        status = supervise(
            {"worker": "sh -c 'exit 3'"},
            environ=os.environ,
            cwd=tmp_path,
            servers={},
            output=output,
        )

        assert status == 0
        assert "worker ended with exit status 3; starting it again in 1 s" in output.getvalue()

    def test_the_pause_is_short_again_after_a_long_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(supervisor, "_LONGEST_PAUSE_SECONDS", 0.5)
        output = _Ending("starting it again in 1 s", times=2)

        status = supervise(
            {"worker": "sh -c 'sleep 0.6; kill -9 $$'"},
            environ=os.environ,
            cwd=tmp_path,
            servers={},
            output=output,
        )

        assert status == 0
        assert "in 2 s" not in output.getvalue()


class _Ending(io.StringIO):
    """An output that asks this process to stop once it holds a text so many times."""

    def __init__(self, text: str, times: int = 1) -> None:
        super().__init__()
        self._text, self._times = text, times

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.getvalue().count(self._text) == self._times:
            self._times = 0
            os.kill(os.getpid(), signal.SIGTERM)
        return written


class TestPythonPrograms:
    """They are forks of the supervisor, which has loaded what they need."""

    @pytest.fixture
    def program(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
        """Write the program that `python -m program` runs."""
        monkeypatch.syspath_prepend(tmp_path)

        def write(code: str) -> None:
            (tmp_path / "program.py").write_text(f"import os, sys\n{code}\n")

        return write

    def said(self, tmp_path: Path, command: str) -> list[str]:
        output = io.StringIO()
        environ = {**os.environ, "NAME": "a value"}
        supervise({"web": command}, environ=environ, cwd=tmp_path, servers={}, output=output)
        return output.getvalue().splitlines()

    def test_share_what_is_loaded(
        self, tmp_path: Path, program: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "loaded_before", "yes", raising=False)
        program("print(sys.loaded_before)")

        assert self.said(tmp_path, "python -m program")[0] == "web    | yes"

    def test_get_arguments_as_from_the_shell_and_the_environment(
        self, tmp_path: Path, program: Callable[[str], None]
    ) -> None:
        program("print(sys.argv[1:], os.environ['NAME'], os.getcwd())")

        shown = self.said(tmp_path, "python -m program --port ${NONE:-80} 'a b'")

        assert shown[0] == f"web    | ['--port', '80', 'a b'] a value {tmp_path}"

    def test_have_a_session_and_signals_of_their_own(
        self, tmp_path: Path, program: Callable[[str], None]
    ) -> None:
        program(
            "import signal\n"
            "print(os.getsid(0) == os.getpid(), signal.getsignal(signal.SIGTERM).name)\n"
            "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
        )

        assert self.said(tmp_path, "python -m program")[:2] == [
            "web    | True SIG_DFL",
            "web    | True",
        ]

    @pytest.mark.parametrize(
        ("code", "ending"),
        [
            ("sys.exit(3)", "web ended with exit status 3"),
            ("raise ValueError('why')", "web ended with exit status 1"),
            ("pass", "web ended with exit status 0"),
        ],
    )
    def test_end_with_their_exit_status(
        self, tmp_path: Path, program: Callable[[str], None], code: str, ending: str
    ) -> None:
        program(code)

        assert f"refine | {ending}; stopping everything" in self.said(tmp_path, "python -m program")

    def test_may_be_scripts_of_installed_packages(self, tmp_path: Path) -> None:
        assert self.said(tmp_path, "gunicorn --version")[0].startswith("web    | gunicorn")


class TestOutput:
    def shown(self, tmp_path: Path, output: io.TextIOWrapper | io.StringIO, **commands: str) -> int:
        return supervise(commands, environ=os.environ, cwd=tmp_path, servers={}, output=output)

    def test_lines_are_prefixed_with_the_padded_name(self, tmp_path: Path) -> None:
        output = io.StringIO()

        self.shown(tmp_path, output, a="sleep 60", worker="printf 'one\\ntwo\\nno line end'")

        assert output.getvalue().splitlines()[:3] == [
            "worker | one",
            "worker | two",
            "worker | no line end",
        ]

    def test_standard_error_is_included(self, tmp_path: Path) -> None:
        output = io.StringIO()

        self.shown(tmp_path, output, web="sh -c 'echo wrong >&2'")

        assert "web    | wrong\n" in output.getvalue()

    def test_a_line_written_in_pieces_is_one_line(self, tmp_path: Path) -> None:
        output = io.StringIO()

        self.shown(tmp_path, output, web="sh -c 'printf a; sleep 0.1; printf b; sleep 0.1; echo c'")

        assert "web    | abc\n" in output.getvalue()

    def test_long_output_is_complete_and_in_order(self, tmp_path: Path) -> None:
        output = io.StringIO()

        self.shown(tmp_path, output, web="seq 50000")

        numbers = [line.removeprefix("web    | ") for line in output.getvalue().splitlines()[:-1]]
        assert numbers == [str(number) for number in range(1, 50001)]

    def test_undisplayable_characters_are_replaced(self, tmp_path: Path) -> None:
        ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")

        assert self.shown(tmp_path, ascii_only, web="printf 'gr\\303\\274n \\377\\n'") == 1

        ascii_only.seek(0)
        assert ascii_only.readline() == "web    | gr?n ?\n"

    def test_a_closed_pipe_ends_nothing(self, tmp_path: Path) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "w", closefd=True) as closed:
            began = time.monotonic()
            assert self.shown(tmp_path, closed, web="sh -c 'echo a; sleep 0.3; echo b'") == 1
            assert time.monotonic() - began >= 0.3
            os.dup2(os.open(os.devnull, os.O_WRONLY), closed.fileno())

    def test_python_processes_are_unbuffered(self, tmp_path: Path) -> None:
        output = io.StringIO()
        code = "import os; print('first'); os._exit(0)"

        self.shown(tmp_path, output, web=f'{shlex.quote(sys.executable)} -c "{code}"')

        assert "web    | first\n" in output.getvalue()
