"""The database's own guards, by raw SQL: what holds whatever the application does."""

import pytest
from sqlalchemy.exc import DBAPIError, IntegrityError

from refine import clock
from refine.extensions import db
from refine.models import ApiToken
from tests import factories, sql

REFUSED = "23001"

WRITTEN = "id, chain_id, sequence, action, data, created_at, hash"
# A record of the transaction that runs; {}: action, memory's id, what the flag becomes.
RECORD = """
INSERT INTO audit_logs
  (chain_id, sequence, agent_id, action, auditable_type, auditable_id, data, created_at, hash)
SELECT id, sequence + 1, agent_id, '{}', 'AgentMemory', '{}',
       json_build_object('constitutional', {}), now(), 'x'
FROM chain_heads WHERE agent_id = {}
"""
# The same, as a restored dump would bring it along.
OLD_RECORD = """
INSERT INTO audit_logs
  (chain_id, sequence, agent_id, action, auditable_type, auditable_id, data, created_at, hash,
   transaction_id, transaction_at)
SELECT id, sequence + 1, agent_id, '{}', 'AgentMemory', '{}',
       json_build_object('constitutional', {}), now(), 'x',
       pg_current_xact_id(), now() - interval '1 day'
FROM chain_heads WHERE agent_id = {}
"""

LIFT = "UPDATE agent_memories SET constitutional = false WHERE id = {}"
DISCARD = "UPDATE agent_memories SET discarded_at = now() WHERE id = {}"
REWRITE = "UPDATE agent_memories SET content = 'other' WHERE id = {}"


@pytest.fixture
def vow(app):
    return constitutional_memory()


def constitutional_memory():
    """A constitutional memory, committed, of an agent that has a chain."""
    memory = factories.memory(factories.agent(), "a vow", constitutional=True)
    memory.agent.record("memory_saved")
    db.session.commit()
    return memory


def record(memory, action="memory_constitutional_toggle", becomes=False, *, of=None, old=False):
    template = OLD_RECORD if old else RECORD
    return template.format(action, (of or memory).id, str(becomes).lower(), memory.agent_id)


def assert_all_refused(subtests, transactions):
    """Each transaction, by what it does, is refused and changes nothing."""
    db.session.commit()
    before = sql.snapshot()
    for number, statements in enumerate(transactions):
        with subtests.test(number=number, last=statements[-1]):
            with pytest.raises(DBAPIError) as error:
                sql.run(*statements)
            assert error.value.orig.sqlstate == REFUSED
            assert sql.snapshot() == before


# -- the audit log is append-only ------------------------------------------------------------------


def test_the_audit_log_refuses_every_change_and_accepts_new_records(vow, subtests):
    assert_all_refused(
        subtests,
        [
            ["UPDATE audit_logs SET action = 'x'"],
            ["UPDATE audit_logs SET action = 'x' WHERE false"],
            ["UPDATE audit_logs SET action = action"],
            ["DELETE FROM audit_logs"],
            ["DELETE FROM audit_logs WHERE false"],
            ["TRUNCATE audit_logs"],
            ["TRUNCATE agents CASCADE"],
            [
                "MERGE INTO audit_logs a USING (SELECT 1) s ON true"
                " WHEN MATCHED THEN UPDATE SET action = 'x'"
            ],
            [
                f"INSERT INTO audit_logs ({WRITTEN}) SELECT {WRITTEN} FROM audit_logs"
                " ON CONFLICT (id) DO UPDATE SET action = 'x'"
            ],
            ["WITH gone AS (DELETE FROM audit_logs RETURNING 1) SELECT * FROM gone"],
        ],
    )
    sql.run(record(vow, "memory_saved"))

    assert sql.value("SELECT count(*) FROM audit_logs") == 2


# -- constitutional memories -----------------------------------------------------------------------


CHANGES = [
    "content = 'other'",
    "discarded_at = now()",
    "memory_type = 'journal'",
    "created_at = created_at - interval '1 day'",
    "agent_id = (SELECT max(id) FROM agents)",
]
MOVES = [
    "UPDATE agent_memories SET agent_id = (SELECT max(id) FROM agents) WHERE id = {}",
    "UPDATE agent_memories SET id = 999999 WHERE id = {}",
    "DELETE FROM agent_memories WHERE id = {}",
]


def test_a_constitutional_memory_refuses_every_change_without_a_permit(vow, subtests):
    factories.agent()
    statements = [
        LIFT,
        *(f"UPDATE agent_memories SET {change} WHERE id = {{}}" for change in CHANGES),
        *MOVES,
        "UPDATE agent_memories SET constitutional = false, tags = '{{voice}}' WHERE id = {}",
        """MERGE INTO agent_memories m USING (SELECT {} AS id) s ON m.id = s.id
           WHEN MATCHED THEN UPDATE SET discarded_at = now()""",
        """MERGE INTO agent_memories m USING (SELECT {} AS id) s ON m.id = s.id
           WHEN MATCHED THEN DELETE""",
        """INSERT INTO agent_memories SELECT * FROM agent_memories WHERE id = {}
           ON CONFLICT (id) DO UPDATE SET content = 'other'""",
        "TRUNCATE agent_memories CASCADE",
    ]

    assert_all_refused(subtests, [[statement.format(vow.id)] for statement in statements])


def test_a_constitutional_memory_accepts_tags_and_changes_that_lose_nothing(vow, subtests):
    for change in [
        "tags = '{voice,relational}'",
        "extra = 'more', source = 'mem0'",
        "updated_at = now(), row_digest = 'x'",
        "content = content, created_at = created_at",
    ]:
        with subtests.test(change=change):
            sql.run(f"UPDATE agent_memories SET {change} WHERE id = {vow.id}")

    db.session.expire_all()
    assert vow.constitutional


def test_no_memory_is_ever_deleted(app, subtests):
    agent = factories.agent()
    for fields in [{}, {"memory_type": "journal"}, {"discarded_at": clock.now()}]:
        memory = factories.memory(agent, **fields)
        db.session.commit()
        with subtests.test(fields=fields), pytest.raises(DBAPIError, match="nothing is purged"):
            sql.run(f"DELETE FROM agent_memories WHERE id = {memory.id}")


def test_a_record_of_the_same_transaction_permits_lifting_the_flag(app, subtests):
    for name, wrapped in {
        "plain": lambda permit, lift: [permit, lift],
        "record in a savepoint": lambda permit, lift: [
            "SAVEPOINT here",
            permit,
            "RELEASE SAVEPOINT here",
            lift,
        ],
        "change in a savepoint": lambda permit, lift: [permit, "SAVEPOINT here", lift],
    }.items():
        with subtests.test(name):
            vow = constitutional_memory()
            sql.run(*wrapped(record(vow), LIFT.format(vow.id)))
            db.session.expire_all()
            assert not vow.constitutional


def test_no_other_record_permits_lifting_the_flag(vow, subtests):
    other = factories.memory(vow.agent, "another vow", constitutional=True)
    other_agent = factories.agent()
    other_agent.record("memory_saved")
    db.session.commit()
    toggle, rollback = "memory_constitutional_toggle", "memory_refinement_rollback"
    lift, discard = LIFT.format(vow.id), DISCARD.format(vow.id)

    assert_all_refused(
        subtests,
        [
            [lift, record(vow)],
            [record(vow, of=other), lift],
            [RECORD.format(toggle, vow.id, "false", other_agent.id), lift],
            [RECORD.format(rollback, vow.id, "null", other_agent.id), discard],
            [record(vow, becomes=True), lift],
            [record(vow, becomes="null"), lift],
            ["SAVEPOINT here", record(vow), "ROLLBACK TO SAVEPOINT here", lift],
            # an old record whose transaction has the same number
            [record(vow, toggle, old=True), lift],
            [record(vow, rollback, old=True), lift],
            *(
                [record(vow, action), change.format(vow.id)]
                for action in (
                    "memory_discarded",
                    "memory_refinement_delete",
                    "memory_refinement_update",
                    "memory_saved",
                    "memory_restored",
                )
                for change in (LIFT, DISCARD, REWRITE)
            ),
        ],
    )
    sql.run(record(vow))  # in an earlier transaction
    assert_all_refused(subtests, [[lift]])


def test_a_toggles_record_permits_nothing_but_the_flag(vow, subtests):
    factories.agent()

    assert_all_refused(
        subtests,
        [
            [
                record(vow),
                f"UPDATE agent_memories SET constitutional = false, {change} WHERE id = {vow.id}",
            ]
            for change in CHANGES
        ],
    )


def test_a_rollbacks_record_permits_restoring_but_neither_moving_nor_deleting(vow, subtests):
    factories.agent()
    permit = record(vow, "memory_refinement_rollback", "null")
    restore = (
        "UPDATE agent_memories SET content = 'older', constitutional = false,"
        f" created_at = now(), memory_type = 'journal' WHERE id = {vow.id}"
    )

    assert_all_refused(subtests, [[permit, move.format(vow.id)] for move in MOVES])
    sql.run(permit, restore)

    assert sql.value("SELECT content FROM agent_memories") == b"older"


# -- one live session an agent ---------------------------------------------------------------------


@pytest.mark.parametrize("status", ["queued", "running"])
def test_the_database_refuses_a_second_live_session_of_an_agent(app, status):
    session = factories.session()

    with pytest.raises(IntegrityError, match="uq_refinement_sessions_live_agent"):
        sql.run(
            f"""INSERT INTO refinement_sessions
                  (agent_id, trigger, status, model_id, threshold, lease_token)
                VALUES ({session.agent_id}, 'api', '{status}', 'm', 0.5,
                  CASE '{status}' WHEN 'running' THEN gen_random_uuid() END)"""
        )


# -- ranges ----------------------------------------------------------------------------------------


@pytest.fixture
def row_of_each(app):
    """One row in each table that has a CHECK."""
    session = factories.session()
    factories.grant(session.agent)
    session.agent.account.record("memory_saved")
    from_account = {"account": session.agent.account}
    ApiToken.mint(**from_account)
    factories.endpoint(**from_account)
    factories.user(**from_account)
    db.session.commit()


OUT_OF_RANGE = [
    ("accounts", "slug = 'No slug'", "slug"),
    ("accounts", "monthly_cost_cap_usd = -0.01", "monthly_cost_cap"),
    ("users", "role = 'owner'", "role"),
    ("agents", "refinement_threshold = 0", "refinement_threshold"),
    ("agents", "refinement_threshold = 1.0001", "refinement_threshold"),
    ("agents", "core_token_budget = 0", "core_token_budget"),
    ("agents", "core_token_budget = 10000001", "core_token_budget"),
    ("data_keys", "purpose = 'other'", "purpose"),
    ("data_keys", "wrapped = NULL", "destroyed"),
    ("data_keys", "destroyed_at = now()", "destroyed"),
    ("agent_memories", "memory_type = 'note'", "memory_type"),
    ("agent_memories", "tags = '{secret}'", "tags"),
    ("agent_memories", "token_estimate = 0", "token_estimate"),
    ("agent_memories", "token_estimate = 10001", "token_estimate"),
    ("refinement_sessions", "trigger = 'whim'", "trigger"),
    ("refinement_sessions", "status = 'done', lease_token = NULL", "status"),
    ("refinement_sessions", "threshold = 0", "threshold"),
    ("refinement_sessions", "threshold = 1.5", "threshold"),
    ("refinement_sessions", "mutation_count = 11", "mutation_count"),
    ("refinement_sessions", "mutation_count = -1", "mutation_count"),
    ("refinement_sessions", "removed_tokens = removable_tokens + 1", "removed_tokens"),
    ("refinement_sessions", "removed_tokens = -1", "removed_tokens"),
    ("refinement_sessions", "lease_token = NULL", "lease"),
    ("refinement_sessions", "ended_at = now()", "ended"),
    ("refinement_sessions", "status = 'failed', lease_token = NULL", "ended"),
    ("session_entries", "counting_tokens = -1", "counting_tokens"),
    ("session_entries", "counting_tokens = ceiling_tokens + 1", "counting_tokens"),
    ("access_grants", "reason = 'curiosity'", "reason"),
    ("access_grants", "status = 'open'", "status"),
    ("access_grants", "end_reason = 'bored'", "end_reason"),
    ("access_grants", "duration_minutes = 14", "duration_minutes"),
    ("access_grants", "duration_minutes = 241", "duration_minutes"),
    ("access_grants", "granted_at = now()", "expires"),
    ("access_grants", "status = 'granted'", "granted"),
    ("api_tokens", "kind = 'other'", "kind"),
    ("api_tokens", "kind = 'agent'", "owner"),
    ("endpoints", "removed_at = now()", "removed"),
    ("chain_heads", "agent_id = (SELECT id FROM agents), account_id = 1", "owner"),
]


def test_the_database_refuses_values_out_of_range(row_of_each, subtests):
    for table, change, constraint in OUT_OF_RANGE:
        with (
            subtests.test(table=table, change=change),
            pytest.raises(IntegrityError, match=f"ck_{table}_{constraint}"),
        ):
            sql.run(f"UPDATE {table} SET {change}")


SECOND_ONES = [
    ("INSERT INTO accounts (name, slug) SELECT name, slug FROM accounts", "uq_accounts_slug"),
    (
        "INSERT INTO users (account_id, email) SELECT account_id, upper(email) FROM users",
        "uq_users_email",
    ),
    (
        """INSERT INTO data_keys (purpose, wrapped, wrapped_by)
           VALUES ('platform', 'x', 'x')""",
        "uq_data_keys_platform",
    ),
    (
        "INSERT INTO chain_heads (account_id) SELECT account_id FROM chain_heads"
        " WHERE account_id IS NOT NULL",
        "uq_chain_heads_owner",
    ),
    (
        """INSERT INTO agents (account_id, data_key_id, name, model_id)
           SELECT account_id, data_key_id, 'x', 'x' FROM agents""",
        "uq_agents_data_key_id",
    ),
    (
        """INSERT INTO api_tokens (kind, account_id, token_hash, hint)
           SELECT kind, account_id, token_hash, hint FROM api_tokens""",
        "uq_api_tokens_token_hash",
    ),
    (
        """INSERT INTO audit_logs (chain_id, sequence, action, data, created_at, hash)
           SELECT chain_id, sequence, action, data, created_at, hash FROM audit_logs""",
        "uq_audit_logs_chain_id_sequence",
    ),
]


def test_the_database_refuses_a_second_row_of_the_same_kind(row_of_each, subtests):
    for statement, constraint in SECOND_ONES:
        with subtests.test(constraint), pytest.raises(IntegrityError, match=constraint):
            sql.run(statement)
