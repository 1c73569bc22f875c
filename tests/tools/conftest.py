from collections.abc import Callable, Iterator

import pytest
from flask import Flask

from refine.extensions import db
from tests import sql

BREAK_AUDIT = """
CREATE FUNCTION break_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'the disk is full'; END $$;
CREATE TRIGGER break_audit BEFORE INSERT ON audit_logs FOR EACH ROW
  WHEN (starts_with(NEW.action, '{}')) EXECUTE FUNCTION break_audit();
"""


@pytest.fixture
def broken_audit(app: Flask) -> Iterator[Callable[[str], None]]:
    """Makes the records of these actions fail, as a full disk would."""
    yield lambda action: sql.run(BREAK_AUDIT.format(action))
    db.session.rollback()
    sql.run("DROP FUNCTION break_audit() CASCADE")
