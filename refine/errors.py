"""What can go wrong, sorted by what the caller should do about it.

RefineError                  tell the person: the message says what, where and what to do
├── SettingsError            a setting is wrong: mend it, start again
├── EmbeddedError            an embedded server cannot run here: follow the message
│   └── AlreadyRunning       another process runs them for this data folder: use that one
├── Unreachable              a server does not answer: start it, or mend its URL
├── NotFound                 the thing named does not exist, or not for this caller
├── Ambiguous                the name fits several things: use an id
├── InvalidValue             a value breaks a rule of the model: correct it
├── Refused                  the state of things forbids it: nothing was changed
├── TooMany                  too many attempts: wait, then try again
├── SealingError             content cannot be sealed or opened: look at the keys
│   └── WrongKey             the configured keys are not the ones the database was sealed with
└── ProviderError            the model could not be asked: end the session, ask again another time

Messages carry causes, names and figures, never memory content, prompts or keys.
"""


class RefineError(Exception):
    """Anything that Refine refuses or fails to do, in words for a person."""


class SettingsError(RefineError):
    """A setting has a value that cannot be used."""


class EmbeddedError(RefineError):
    """An embedded PostgreSQL or Valkey cannot be started or stopped."""


class AlreadyRunning(EmbeddedError):
    """Another process runs the embedded servers of this data folder.

    ``pid`` is that process, ``holder`` what it is (``up``, or the command that holds them).
    """

    def __init__(self, pid: int, holder: str) -> None:
        self.pid = pid
        self.holder = holder
        super().__init__(f"refine {holder} already runs for this data folder (process {pid})")


class Unreachable(RefineError):
    """PostgreSQL or Redis does not answer."""


class NotFound(RefineError):
    """What was named does not exist."""


class Ambiguous(RefineError):
    """What was named exists more than once."""


class InvalidValue(RefineError, ValueError):
    """A value breaks a rule of the data model."""


class Refused(RefineError):
    """The present state forbids what was asked; nothing was changed."""


class TooMany(RefineError):
    """Too many attempts; ``retry_after_seconds`` says when the next one is taken."""

    def __init__(self, message: str, *, retry_after_seconds: int) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(message)


class SealingError(RefineError):
    """Content cannot be sealed or opened."""


class WrongKey(SealingError):
    """REFINE_ENCRYPTION_KEYS does not hold the key that the database was sealed with."""


class ProviderError(RefineError):
    """The model could not be asked, or what came back cannot be used.

    ``kind`` is a short word for figures and filters (``timeout``, ``rate_limited``, …),
    ``http_status`` the status of the last answer, if there was one.
    """

    def __init__(self, message: str, *, kind: str, http_status: int | None = None) -> None:
        self.kind = kind
        self.http_status = http_status
        super().__init__(message)
