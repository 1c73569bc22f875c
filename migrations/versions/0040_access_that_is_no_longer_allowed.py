"""Access that its user, or its agent, may no longer have ends for good."""

from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None

_BEFORE = "'expired', 'ended_by_user', 'revoked_by_agent', 'revoked_by_admin'"


def upgrade() -> None:
    _allow(f"{_BEFORE}, 'no_longer_allowed'")


def downgrade() -> None:
    _allow(_BEFORE)


def _allow(reasons: str) -> None:
    op.execute(
        "ALTER TABLE access_grants DROP CONSTRAINT ck_access_grants_end_reason, "
        f"ADD CONSTRAINT ck_access_grants_end_reason CHECK (end_reason IN ({reasons}))"
    )
