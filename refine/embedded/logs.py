"""The log of an embedded server since its last start."""

from pathlib import Path

_LARGEST_BYTES = 5_000_000
_SHOWN_LINES = 5


class ServerLog:
    """A log file that servers append to; ``last_lines`` covers only what was added since."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists() and path.stat().st_size > _LARGEST_BYTES:
            path.replace(path.with_suffix(".log.old"))
        path.touch(mode=0o600)
        self._start = path.stat().st_size

    def last_lines(self) -> str:
        with self.path.open("rb") as file:
            file.seek(self._start)
            lines = file.read().decode(errors="replace").splitlines()
        return "\n".join([*lines[-_SHOWN_LINES:], f"(log: {self.path})"])
