"""`refine reflect`."""

from flask import Flask

from refine.extensions import db
from refine.models import Agent
from tests import factories
from tests.forked import refine


def reflecting(app: Flask, model_id: str = "rehearsal/ada") -> Agent:
    demo = factories.account(slug="demo")
    agent = factories.agent(name="Ada", model_id=model_id, account=demo)
    factories.entry(agent, "the canary sang")
    db.session.commit()
    return agent


def test_reflect_prints_figures(app: Flask, environ: dict[str, str]) -> None:
    agent = reflecting(app)

    done = refine("reflect", "Ada", environ=environ)

    assert done.returncode == 0
    assert f"Ada (agent {agent.id}): reflection completed, 1 promoted; 2 calls" in done.stdout
    assert "canary" not in done.stdout + done.stderr


def test_reflect_says_why_it_failed(app: Flask, environ: dict[str, str]) -> None:
    reflecting(app, "test/model")

    done = refine("reflect", "Ada", environ={**environ, "OPENROUTER_API_KEY": ""})

    assert done.returncode == 1
    assert "refine: the reflection failed: no API key: set OPENROUTER_API_KEY" in done.stderr


def test_reflect_waits_while_another_task_runs(app: Flask, environ: dict[str, str]) -> None:
    agent = reflecting(app)
    factories.extraction(agent).claim()
    db.session.commit()

    done = refine("reflect", "Ada", environ=environ)

    db.session.rollback()
    assert "another task of this agent is running; a worker will run the reflection" in done.stdout
    assert [task.status for task in factories.live_tasks(agent)] == ["running", "queued"]
