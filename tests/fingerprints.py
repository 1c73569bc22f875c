"""`python -m tests.fingerprints`: list what the migrations make, in migrations/schema.txt."""

from pathlib import Path
from tempfile import TemporaryDirectory

from flask_migrate import upgrade

from refine.extensions import db
from refine.models import schema
from tests.conftest import app_of, environ_of, servers_in


def listing() -> str:
    """The line of each object of the application's database."""
    with db.engine.connect() as connection:
        found = schema.digests(connection)
    return "".join(f"{digest} {name}\n" for name, digest in sorted(found.items()))


def main() -> None:
    with (
        TemporaryDirectory(prefix="refine-") as folder,
        servers_in(Path(folder)) as servers,
        app_of(environ_of(servers)),
    ):
        upgrade()
        schema.LISTED.write_text(listing())


if __name__ == "__main__":
    main()
