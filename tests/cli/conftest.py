"""What the commands' tests share."""

import pytest
from flask import Flask
from sqlalchemy import func, select

from refine.extensions import db
from refine.models import Account, Agent
from tests import factories


@pytest.fixture
def ledger(app: Flask) -> Agent:
    """An agent of the rehearsal model with 20 memories, one of them a canary, committed."""
    account = factories.account(slug="demo", name="Demo")
    owner = factories.agent(account=account, name="Ada", model_id="rehearsal/ada")
    factories.ledger(owner, *[25] * 19)
    factories.memory(owner, "the canary sings at dawn")
    db.session.commit()
    return owner


@pytest.fixture
def demo(app: Flask) -> Account:
    account = factories.account(slug="demo", name="Demo")
    db.session.commit()
    return account


def row_counts() -> dict[str, int]:
    """How many rows every table holds, as they are committed."""
    db.session.rollback()
    counts = {
        table.name: db.session.scalar(select(func.count()).select_from(table)) or 0
        for table in db.metadata.sorted_tables
    }
    db.session.rollback()
    return counts
