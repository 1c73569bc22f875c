"""What access opens: all that an agent keeps, or less."""

import uuid
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class AccessScope:
    """Everything, unless it names a session, memories, or both: what that changed of these."""

    session_id: uuid.UUID | None = None
    memory_ids: frozenset[int] | None = None

    @classmethod
    def of(cls, grant: Any) -> "AccessScope":
        ids = grant.memory_ids
        return cls(grant.session_id, frozenset(ids) if ids is not None else None)

    @property
    def is_narrow(self) -> bool:
        return self != AccessScope()

    def opens(self, *, session_id: uuid.UUID | None = None, memory_id: int | None = None) -> bool:
        """Tell whether it opens a text, by the session and memory that the text belongs to. What
        belongs to neither, as prompts do, only access to everything opens.
        """
        is_of_session = self.session_id in (None, session_id)
        return is_of_session and (self.memory_ids is None or memory_id in self.memory_ids)

    def is_within(self, asked: "AccessScope") -> bool:
        is_of_session = asked.session_id in (None, self.session_id)
        if asked.memory_ids is None or not is_of_session:
            return is_of_session
        return self.memory_ids is not None and self.memory_ids <= asked.memory_ids

    def as_data(self) -> dict[str, Any]:
        """Return its ids, as records keep them; nothing if it is everything."""
        data: dict[str, Any] = {}
        if self.session_id is not None:
            data["session_id"] = str(self.session_id)
        if self.memory_ids is not None:
            data["memory_ids"] = sorted(self.memory_ids)
        return data

    def __str__(self) -> str:
        if self.memory_ids is None:
            return "everything" if self.session_id is None else "the changes of one session"
        noun = "memory" if len(self.memory_ids) == 1 else "memories"
        named = f"{noun} {', '.join(f'#{id_}' for id_ in sorted(self.memory_ids))}"
        return named if self.session_id is None else f"the changes of one session to {named}"
