"""Where things stand, for load balancers."""

import json

from refine import clock, create_app
from refine.extensions import db
from refine.models import PeriodicWork
from refine.settings import Settings
from tests.commands import UNUSED_PORT

NOWHERE = f"127.0.0.1:{UNUSED_PORT}"


def asked(path: str, environ: dict[str, str], **variables: str) -> tuple[int, str, dict[str, str]]:
    """What an application of these settings answers: status, text, headers."""
    app = create_app(Settings.from_environ({**environ, **variables}))
    answer = app.test_client().get(path)
    with app.app_context():
        db.engine.dispose()
    return answer.status_code, answer.get_data(as_text=True), dict(answer.headers)


def states(path: str, environ: dict[str, str], **variables: str) -> tuple[int, dict[str, str]]:
    status, text, _ = asked(path, environ, **variables)
    return status, json.loads(text)


def test_the_process_is_healthy_as_long_as_it_answers(environ):
    away = {"DATABASE_URL": f"postgresql://{NOWHERE}/x", "REDIS_URL": f"redis://{NOWHERE}/0"}

    answer = states("/healthz", environ, **away)

    assert answer == (200, {"status": "ok"})


def test_a_complete_installation_is_ready(client):
    PeriodicWork.note("tick", clock.now())
    db.session.commit()

    answer = client.get("/readyz")

    assert answer.status_code == 200
    assert answer.json == {
        "status": "ok",
        "database": "ok",
        "migrations": "ok",
        "keys": "ok",
        "redis": "ok",
        "clock": "ok",
        "verification": "ok",
    }


def test_a_missing_database_is_not_ready_and_reveals_no_secret(app, environ):
    url = f"postgresql://user:secret@{NOWHERE}/x"

    status, found = states("/readyz", environ, DATABASE_URL=url)

    said = "PostgreSQL does not answer at DATABASE_URL; start it, or fix DATABASE_URL"
    assert status == 503
    assert found == {
        "status": "unavailable",
        "database": said,
        "migrations": said,
        "keys": said,
        "redis": "ok",
    }
