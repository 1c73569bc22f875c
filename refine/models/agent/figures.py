"""Figures on an agent's row: what lists show of its ledger and its sessions.

Triggers of the database update them, in the transaction of what they count, so
they are right whoever writes; ``refine audit verify`` compares them with the rows. They do not
decide what a session may remove: that is measured on the memories themselves.
"""

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar

from sqlalchemy import BigInteger, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from refine.models.columns import BigId


class Figures:
    """The columns, which only triggers write."""

    id: Mapped[BigId]

    unsigned: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            *("core_tokens", "core_count", "ledger_version", "last_session_id", "last_session_at"),
            *("last_session_status", "last_session_error_kind"),
            *("last_session_undone_at", "last_session_seen_at"),
        ),
        "written by triggers",
    )

    # the token mass, and how many kept core memories have it
    core_tokens: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    core_count: Mapped[int] = mapped_column(server_default=text("0"))
    # rises with every change of a memory
    ledger_version: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))

    # the latest session, regardless of status
    last_session_id: Mapped[uuid.UUID | None]
    last_session_at: Mapped[datetime | None]
    last_session_status: Mapped[str | None] = mapped_column(Text)
    last_session_error_kind: Mapped[str | None] = mapped_column(Text)
    last_session_undone_at: Mapped[datetime | None]
    last_session_seen_at: Mapped[datetime | None]
