"""Errors by what callers do about them; messages never hold memory content, prompts or keys."""


class RefineError(Exception):
    """Anything that Refine refuses or fails to do: the message tells a person what to do."""


class SettingsError(RefineError):
    """A setting has an unusable value: fix it and start again."""


class EmbeddedError(RefineError):
    """An embedded server cannot run here: follow the message."""


class AlreadyRunning(EmbeddedError):
    """Another process (``pid``, of the command ``holder``) runs this data folder's servers."""

    def __init__(self, pid: int, holder: str) -> None:
        self.pid = pid
        self.holder = holder
        super().__init__(f"refine {holder} already runs for this data folder (process {pid})")


class Unreachable(RefineError):
    """PostgreSQL or Redis does not answer: start it, or fix its URL."""


class ClocksDiffer(RefineError):
    """The clocks of the database and of this process differ too much to decide who may read."""


class BeingUpgraded(RefineError):
    """The database's schema is incompatible with this version: wait, or upgrade it."""


class NotFound(RefineError):
    """The named thing does not exist, or not for this caller."""


class Ambiguous(RefineError):
    """Several things have this name: use an id."""


class InvalidValue(RefineError, ValueError):
    """A value breaks a rule of the data model."""


class Refused(RefineError):
    """The request is not possible in the current state; nothing was changed."""


class ChangedMeanwhile(Refused):
    """Another transaction changed a row after this one had loaded it: look again."""

    def __init__(self) -> None:
        super().__init__("it was changed at the same moment; look again, then try again")


class TooMany(RefineError):
    """Too many attempts; the next one is accepted after ``retry_after_seconds``."""

    def __init__(self, message: str, *, retry_after_seconds: int) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(message)


class RowAltered(RefineError):
    """A row that decides something does not match its keyed digest, so it is not trusted."""

    def __init__(self, row: str) -> None:
        super().__init__(
            f"{row} was changed in the database, not by Refine, and is not trusted; "
            "run `refine audit verify` to find such rows"
        )


class SealingError(RefineError):
    """Content cannot be sealed or opened: look at the keys."""


class Erased(SealingError):
    """The key was destroyed, and with it everything that it sealed."""


class WrongKey(SealingError):
    """REFINE_ENCRYPTION_KEYS does not hold the key that the database was sealed with."""


class ProviderError(RefineError):
    """The model gave no usable answer; ``kind`` is a word for filters, such as ``timeout``."""

    def __init__(self, message: str, *, kind: str, http_status: int | None = None) -> None:
        self.kind = kind
        self.http_status = http_status
        super().__init__(message)
