"""Pictures of every page, light and dark, wide and narrow, to be looked at: build/screenshots/.

Run as ``python -m tests.browser.screenshots``; names of pages as arguments take these alone.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from flask import Flask
from flask_migrate import upgrade
from playwright.sync_api import Browser, sync_playwright

from refine import create_app
from refine.embedded import owned_servers
from refine.extensions import db
from refine.settings import Settings
from tests.browser.history import History, lived, platform_admin
from tests.browser.serving import BROWSERS, browser_path, free_port, serving
from tests.browser.tour import stops
from tests.browser.visiting import sign_in

FOLDER = Path("build/screenshots")
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
SIZES = {"desktop": (1280, 800), "phone": (360, 780)}


def main(wanted: list[str]) -> None:
    """Take them all, or those that are wanted."""
    browser_at = browser_path()
    if browser_at is None:
        sys.exit(f"no browser: install one of {', '.join(BROWSERS)}")
    shutil.rmtree(FOLDER, ignore_errors=True)
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="refine-pictures-") as data_dir:
        environ = {"REFINE_DATA_DIR": data_dir, "PORT": str(port), "REFINE_LOG_LEVEL": "WARNING"}
        with _installation(environ) as app, sync_playwright() as playwright:
            # half a year, with 300 points in one agent's story and three in another's
            history = lived(platform_admin(), weeks=26, saves_a_week=10, others=16)
            with serving(app, port):
                browser = playwright.chromium.launch(
                    executable_path=browser_at, args=["--no-sandbox"]
                )
                for scheme in SCHEMES:
                    for size in SIZES:
                        _take(browser, f"http://localhost:{port}", history, scheme, size, wanted)
                browser.close()
    print(f"{len(list(FOLDER.rglob('*.png')))} pictures in {FOLDER}/")


@contextmanager
def _installation(environ: dict[str, str]) -> Iterator[Flask]:
    settings = Settings.from_environ({**os.environ, **environ})
    with owned_servers(settings.data_dir, holder="screenshots"):
        app = create_app(settings)
        with app.app_context():
            upgrade()
            yield app
            db.session.remove()
            db.engine.dispose()


def _take(
    browser: Browser, url: str, history: History, scheme: Scheme, size: str, wanted: list[str]
) -> None:
    width, height = SIZES[size]
    folder = FOLDER / f"{size}-{scheme}"
    with browser.new_context(
        base_url=url,
        color_scheme=scheme,
        viewport={"width": width, "height": height},
        reduced_motion="reduce",
    ) as context:
        page = context.new_page()
        page.goto("/sign-in")
        page.screenshot(path=folder / "sign-in.png", full_page=True)
        sign_in(page, history.admin.email)
        for name, go in stops(history):
            if not wanted or name in wanted:
                go(page)
                page.screenshot(path=folder / f"{name}.png", full_page=True)
                db.session.rollback()  # PostgreSQL ends a transaction that idles for a minute


if __name__ == "__main__":
    main(sys.argv[1:])
