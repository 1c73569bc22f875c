"""Writes docs/prompts.md, from a database that is made for it."""

import os
import tempfile

from flask_migrate import upgrade

from refine import create_app
from refine.embedded import owned_servers
from refine.extensions import db
from refine.settings import Settings
from tests.printed_prompts.page import PAGE, printed


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="refine-prompts-") as data_dir:
        environ = {"REFINE_DATA_DIR": data_dir, "REFINE_LOG_LEVEL": "WARNING"}
        settings = Settings.from_environ({"PATH": os.environ["PATH"], **environ})
        with owned_servers(settings.data_dir, holder="prompts"):
            app = create_app(settings)
            with app.app_context():
                upgrade()
                PAGE.write_text(printed(app))
                db.session.remove()
                db.engine.dispose()
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
