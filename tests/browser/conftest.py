"""A real browser before real pages: Debian's Chromium, a web server, a worker, a scripted model."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask
from playwright.sync_api import Page, expect

from refine import create_app
from refine.extensions import db
from refine.models import User
from refine.settings import Settings
from tests.browser.history import platform_admin
from tests.browser.serving import BROWSERS, browser_path, free_port, serving
from tests.browser.visiting import begin_signed_in
from tests.commands import start
from tests.scripted_model import ScriptedModel

PATIENCE_MS = 20_000


def pytest_itemcollected(item: pytest.Item) -> None:
    """Run nightly what is not marked for the gate."""
    if item.get_closest_marker("slow") is None:
        item.add_marker(pytest.mark.nightly)


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, Any]:
    """How the browser is started; without one the tests are skipped, or fail where it is a must."""
    expect.set_options(timeout=PATIENCE_MS)
    found = browser_path()
    if found is None:
        missing = f"NO BROWSER: none of {', '.join(BROWSERS)} is on the PATH"
        if os.environ.get("REFINE_REQUIRE_BROWSER") == "1":
            pytest.fail(f"{missing}, and REFINE_REQUIRE_BROWSER=1 requires one", pytrace=False)
        # CI requires one; a developer of anything else need not install it
        pytest.skip(f"{missing}; the pages were not tried in one")
    return {"executable_path": found, "args": ["--no-sandbox"]}


@pytest.fixture(scope="session")
def provider(browser_type_launch_args: dict[str, Any]) -> Iterator[ScriptedModel]:
    """The server of the scripted model, the same for the worker's whole life."""
    with ScriptedModel() as scripted:
        yield scripted


@pytest.fixture
def model(provider: ScriptedModel) -> ScriptedModel:
    provider.forget()
    return provider


@pytest.fixture(scope="session")
def installation(environ: dict[str, str], provider: ScriptedModel) -> dict[str, str]:
    """The environment of web server and worker."""
    port = free_port()
    return {
        **environ,
        "OPENROUTER_BASE_URL": provider.base_url,
        "PORT": str(port),
        "PUBLIC_URL": f"http://localhost:{port}",
    }


@pytest.fixture(scope="session")
def site(installation: dict[str, str], migrated_app: Flask) -> Iterator[str]:
    """The address of a web server over the tests' database."""
    app = create_app(Settings.from_environ(installation))
    with serving(app, int(installation["PORT"])):
        yield installation["PUBLIC_URL"]
    with app.app_context():
        db.engine.dispose()


@pytest.fixture(scope="package")
def worker(installation: dict[str, str], migrated_app: Flask) -> Iterator[None]:
    """A worker, in a process of its own; gone before it could take the jobs of other tests."""
    process = start("worker", environ=installation)
    yield
    process.terminate()
    process.communicate(timeout=20)


@pytest.fixture(scope="session")
def base_url(site: str) -> str:
    """What the paths of the tests are under."""
    return site


@pytest.fixture
def browser_context_args(browser_context_args: dict[str, Any], app: Flask) -> dict[str, Any]:
    """What every context starts from; it is closed before the database is emptied."""
    return browser_context_args


@pytest.fixture
def admin(app: Flask) -> User:
    """Who runs the platform, and may see and do everything."""
    made = platform_admin()
    db.session.commit()
    return made


@pytest.fixture
def desk(page: Page, admin: User, site: str) -> Page:
    """A page on which the admin is signed in."""
    page.set_default_timeout(PATIENCE_MS)
    begin_signed_in(page, admin, site)
    return page
