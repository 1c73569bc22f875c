"""The alarm about verifications, on every page."""

from typing import cast

from flask import Flask, g

from refine.models import Verification
from refine.models.audit.verification import Watch


def register(app: Flask) -> None:
    """Give every page the alarm."""
    app.context_processor(lambda: {"verification_alarm": lambda: verification_watch().alarm})


def verification_watch() -> Watch:
    """Return what verification has to say; looked up once for a page."""
    if "verification_watch" not in g:
        g.verification_watch = Verification.watch()
    return cast(Watch, g.verification_watch)
