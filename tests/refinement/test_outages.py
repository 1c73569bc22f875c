"""Sessions while the database fails: none ends, and nothing is done twice."""

import time

from tests import factories, sql
from tests.chains import verify_agent
from tests.outages import answers_lost


def test_lost_answers_to_commits_repeat_no_edit(world):
    session, deleted = world.queue(), world.ids[0]
    world.model.say("YES, gladly.").call("delete", id=deleted).call("complete", summary="Done.")

    with answers_lost():
        world.refine(session)

    assert (session.status, session.end_reason) == ("completed", "the agent completed it")
    assert (session.mutation_count, len(world.model.requests)) == (1, 3)
    # what may have been billed and is not known to be counted is counted again
    assert session.llm_calls >= 3
    actions = [record.action for record in factories.records(world.agent)]
    assert actions.count("memory_refinement_delete") == 1
    assert actions.count("memory_refinement_complete") == 1
    assert verify_agent(world.agent).problem is None


def test_an_answer_counts_though_the_database_could_not_say_whether_to_wait_for_it(world):
    def answer_late() -> None:
        with world.app.app_context():
            sql.run("ALTER TABLE refinement_sessions RENAME TO away")
            time.sleep(1.3)  # the database is asked once a second
            sql.run("ALTER TABLE away RENAME TO refinement_sessions")

    world.model.say("NO").meanwhile(answer_late)

    session = world.refine()

    assert (session.status, session.llm_calls) == ("declined", 1)
