"""Refinement sessions: their life, their edits, and their limits."""

from refine.models.runs.session.entry import SessionEntry
from refine.models.runs.session.session import (
    CONSENTED_ENDS,
    END_ACTION,
    ENDED,
    LOOP_EDITS,
    MAX_MUTATIONS,
    MUTATIONS,
    NEED_ATTENTION,
    OPERATIONS,
    ROLLING_WINDOW,
    TRIGGERS,
    AttentionStatus,
    Channel,
    EndStatus,
    RefinementSession,
    SessionAlreadyLive,
    SessionRequest,
    Trigger,
)
from refine.models.runs.session.survival import EditRefused

__all__ = [
    "CONSENTED_ENDS",
    "ENDED",
    "END_ACTION",
    "LOOP_EDITS",
    "MAX_MUTATIONS",
    "MUTATIONS",
    "NEED_ATTENTION",
    "OPERATIONS",
    "ROLLING_WINDOW",
    "TRIGGERS",
    "AttentionStatus",
    "Channel",
    "EditRefused",
    "EndStatus",
    "RefinementSession",
    "SessionAlreadyLive",
    "SessionEntry",
    "SessionRequest",
    "Trigger",
]
