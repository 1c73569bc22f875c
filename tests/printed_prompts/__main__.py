"""Writes docs/prompts.md and docs/images/picture.svg, each from a database made for it."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from flask import Flask
from flask_migrate import upgrade

from refine import create_app
from refine.embedded import owned_servers
from refine.extensions import db
from refine.settings import Settings
from tests.demo.picture import PICTURE, picture_of_wren
from tests.printed_prompts.page import PAGE, printed


@contextmanager
def _empty_installation() -> Iterator[Flask]:
    with tempfile.TemporaryDirectory(prefix="refine-prompts-") as data_dir:
        environ = {"REFINE_DATA_DIR": data_dir, "REFINE_LOG_LEVEL": "WARNING"}
        settings = Settings.from_environ({"PATH": os.environ["PATH"], **environ})
        with owned_servers(settings.data_dir, holder="prompts"):
            app = create_app(settings)
            with app.app_context():
                upgrade()
                yield app
                db.session.remove()
                db.engine.dispose()


def main() -> None:
    for file, write in ((PAGE, printed), (PICTURE, picture_of_wren)):
        with _empty_installation() as app:
            file.write_text(write(app))
        print(f"wrote {file}")


if __name__ == "__main__":
    main()
