"""What belongs to an agent: sealed under its key, and locked behind it."""

from sqlalchemy.orm import Mapped, declared_attr, relationship

from refine.extensions import db
from refine.models.agent import Agent
from refine.models.columns import Uuid
from refine.sealing import DataKey


class AgentsOwn:
    """A row of an agent's; its table has a column ``agent_id``."""

    id: Mapped[Uuid]

    @declared_attr
    def agent(self) -> Mapped[Agent]:
        """The agent whose memory it is about."""
        return relationship()

    def data_key(self) -> DataKey:
        """Return the agent's key."""
        return self.agent.data_key()

    def lock(self) -> None:
        """Lock the agent and this row, in this order, and read both afresh."""
        self.agent.lock()
        db.session.refresh(self, with_for_update={"key_share": True})
