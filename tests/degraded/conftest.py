"""What breaks, and applications that meet it."""

from collections.abc import Callable, Iterator

import pytest
from flask import Flask

from refine import create_app
from refine.extensions import db
from refine.jobs import queue
from refine.models import Account, User
from refine.models.people import user
from refine.settings import Settings
from tests import factories
from tests.degraded.breaking import BreakableRedis, Fault
from tests.web.conftest import Browser, signed_in_browser


@pytest.fixture(autouse=True)
def cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user, "_hasher", factories.CHEAP_HASHER)
    monkeypatch.setattr(user, "DUMMY_PASSWORD_HASH", factories.password_hash())


@pytest.fixture(scope="session")
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BreakableRedis]:
    redis = BreakableRedis(tmp_path_factory.mktemp("valkey"))
    yield redis
    redis.close()


@pytest.fixture
def breakable(app: Flask, own_redis: BreakableRedis) -> Iterator[BreakableRedis]:
    """A Redis that works, is empty, and that nobody has found silent."""
    with own_redis.connection() as connection:
        connection.flushall()
    queue._silent_until.clear()
    yield own_redis
    queue._silent_until.clear()


@pytest.fixture
def its_environ(breakable: BreakableRedis, environ: dict[str, str]) -> dict[str, str]:
    return {**environ, "REDIS_URL": breakable.url, "REFINE_METRICS_TOKEN": "a token"}


@pytest.fixture
def its_app(its_environ: dict[str, str]) -> Iterator[Flask]:
    """The application with that Redis."""
    made = create_app(Settings.from_environ(its_environ))
    yield made
    with made.app_context():
        db.session.remove()
        db.engine.dispose()


@pytest.fixture
def broken(breakable: BreakableRedis, fault: Fault) -> Iterator[Callable[[], None]]:
    """Redis is broken; call it to mend Redis early."""
    is_broken = [True]
    breakable.break_down(fault)

    def mend() -> None:
        if is_broken.pop() if is_broken else False:
            breakable.mend(fault)

    yield mend
    mend()


@pytest.fixture
def account(app: Flask) -> Account:
    made = factories.account(name="Demo", slug="demo")
    db.session.commit()
    return made


@pytest.fixture
def admin(account: Account) -> User:
    made = factories.user(account=account, site_admin=True)
    db.session.commit()
    return made


@pytest.fixture
def dashboard(its_app: Flask, admin: User) -> Browser:
    """A browser in which a site admin is signed in."""
    return signed_in_browser(its_app, admin)
