"""The alarm about verifications, on every page."""

from flask import Flask

from refine.models import Verification
from refine.models.audit.verification import Watch
from refine.web import frame


def register(app: Flask) -> None:
    """Give every page the alarm."""
    app.context_processor(lambda: {"verification_alarm": lambda: verification_watch().alarm})


@frame.part
def verification_watch() -> Watch:
    """Return what verification has to say."""
    return Verification.watch()
