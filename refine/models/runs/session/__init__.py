"""Refinement sessions: their life, their edits, and their limits."""

from refine.models.runs.session.entry import SessionEntry as SessionEntry
from refine.models.runs.session.judging import EditRefused as EditRefused
from refine.models.runs.session.session import (
    CONSENTED_ENDS as CONSENTED_ENDS,
    END_ACTION as END_ACTION,
    ENDED as ENDED,
    LOOP_EDITS as LOOP_EDITS,
    MAX_MUTATIONS as MAX_MUTATIONS,
    MUTATIONS as MUTATIONS,
    OPERATIONS as OPERATIONS,
    ROLLING_WINDOW as ROLLING_WINDOW,
    TRIGGERS as TRIGGERS,
    Channel as Channel,
    EndStatus as EndStatus,
    RefinementSession as RefinementSession,
    SessionAlreadyLive as SessionAlreadyLive,
    SessionRequest as SessionRequest,
    Trigger as Trigger,
)
