"""Kinds of actions, for searching; every action has exactly one."""

from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType

_KINDS: dict[str, tuple[str, ...]] = {
    "read": ("memory_access_viewed",),
    "rollbacks": ("memory_refinement_rollback", "memory_restored"),
    "access": (
        "memory_access_requested",
        "memory_access_granted",
        "memory_access_declined",
        "memory_access_ended",
        "memory_access_revoked",
        "audit_exported",
    ),
    "settings": (
        "account_created",
        "account_settings_update",
        "agent_created",
        "agent_settings_update",
        "agent_erased",
    ),
    "failures": (
        "memory_refinement_failed",
        "memory_refinement_incomplete",
        "memory_access_failed",
        "memory_access_lapsed",
        "user_sign_in_failed",
        "user_join_refused",
        "requests_refused",
        "verification_failed",
    ),
    "sessions": (
        "refinement_queued",
        "refinement_seen",
        "memory_refinement_complete",
        "memory_refinement_declined",
        "memory_refinement_skipped",
        "memory_reflection_ended",
        "memory_extraction_ended",
        "sweep_requested",
    ),
    "memories": (
        "memory_refinement_dedup",
        "memory_refinement_consolidate",
        "memory_refinement_update",
        "memory_refinement_delete",
        "memory_refinement_protect",
        "memory_saved",
        "memory_imported",
        "memory_promoted",
        "memory_discarded",
        "memory_corrected",
        "memory_forgotten",
        "memory_erasure_requested",
        "memory_erased",
        "memory_constitutional_toggle",
    ),
    "users": (
        "user_created",
        "user_invited",
        "invitation_ended",
        "user_joined",
        "user_updated",
        "user_password_changed",
        "user_signed_in",
        "user_signed_out",
        "sign_in_ended",
        "token_minted",
        "token_first_used",
        "token_revoked",
    ),
    "maintenance": (
        "keys_rotated",
        "row_updated",
        "rows_pruned",
        "verification_seen",
    ),
}
ACTIONS_OF_KIND: Mapping[str, tuple[str, ...]] = MappingProxyType(_KINDS)
ACTIONS = frozenset(chain(*_KINDS.values()))
