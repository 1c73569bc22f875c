"""Where things stand, for load balancers."""

from refine import clock
from refine.extensions import db
from refine.models import PeriodicWork
from tests.commands import UNUSED_PORT

NOWHERE = f"127.0.0.1:{UNUSED_PORT}"


def test_the_process_is_healthy_as_long_as_it_answers(with_settings):
    away = {"DATABASE_URL": f"postgresql://{NOWHERE}/x", "REDIS_URL": f"redis://{NOWHERE}/0"}

    answer = with_settings(**away).test_client().get("/healthz")

    assert (answer.status_code, answer.json) == (200, {"status": "ok"})


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


def test_a_missing_database_is_not_ready_and_reveals_no_secret(with_settings):
    url = f"postgresql://user:secret@{NOWHERE}/x"

    answer = with_settings(DATABASE_URL=url).test_client().get("/readyz")

    said = "nothing listens at the address in DATABASE_URL; start PostgreSQL, or fix host and port"
    assert answer.status_code == 503
    assert answer.json == {
        "status": "unavailable",
        "database": said,
        "migrations": said,
        "keys": said,
        "redis": "ok",
    }
