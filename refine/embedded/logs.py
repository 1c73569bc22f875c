"""The log of an embedded server: what it said since this start."""

from pathlib import Path

_LARGEST_BYTES = 5_000_000
_SHOWN_LINES = 5


class ServerLog:
    """A log file that servers append to; ``last_lines`` shows only what came after we opened it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists() and path.stat().st_size > _LARGEST_BYTES:
            path.replace(path.with_suffix(".log.old"))
        path.touch(mode=0o600)
        self._begin = path.stat().st_size

    def last_lines(self) -> str:
        """The end of the log and its path, to be put behind an error's first line."""
        with self.path.open("rb") as file:
            file.seek(self._begin)
            lines = file.read().decode(errors="replace").splitlines()
        return "\n".join([*lines[-_SHOWN_LINES:], f"(log: {self.path})"])
