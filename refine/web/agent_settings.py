"""The settings of one agent, prompts but under a grant only by length and change; its erasure."""

from collections.abc import Mapping
from typing import Any

from flask import Blueprint, flash, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from refine.extensions import db
from refine.llm.provider import require_one_model, warning_about
from refine.models import Agent, agent_erasure
from refine.models.agent import configuring
from refine.models.runs.access.asking_rules import IDENTITY_CHANGE_WAIT
from refine.rules.content import MAX_NAME_CHARACTERS
from refine.rules.personal import masked_id
from refine.rules.quantities import in_days, in_hours
from refine.rules.retention import DEFAULT_THRESHOLD
from refine.settings import current as current_settings
from refine.web import granted, scope
from refine.web.forms import attempt, require_current, shown_again, version_to_send, whole_number
from refine.web.words import minute

pages = Blueprint("agent_settings", __name__)


@pages.get("/agents/<int:agent_id>/settings")
def page(agent_id: int, error: Exception | None = None) -> str:
    agent = scope.agent_or_404(agent_id)
    opened = None if error else granted.prompts(agent.id)
    stored = _stored(agent)
    unticked = {box: "" for box in ("paused", "active") if f"has_{box}" in request.form}
    return render_template(
        "agent/settings.html",
        agent=agent,
        error=error,
        values={**stored, **unticked, **request.form},
        drawn_from=version_to_send(stored, error),
        default_threshold=DEFAULT_THRESHOLD,
        max_name=MAX_NAME_CHARACTERS,
        identity_change_wait=in_hours(IDENTITY_CHANGE_WAIT),
        opened=opened,
        prompts=configuring.prompt_lengths(agent),
        last_changes=configuring.last_prompt_changes(agent),
    )


@pages.post("/agents/<int:agent_id>/settings")
@scope.admins_only
@shown_again(page)
def configure(agent_id: int) -> ResponseReturnValue:
    agent = scope.agent_or_404(agent_id)
    agent.lock()
    fields = _sent_settings(agent, request.form)
    require_current(_stored(agent), fields)
    changed = configuring.configure(agent, user=scope.user(), **fields)
    if "model_id" in changed:
        require_one_model(agent.model_id, current_settings())
    model_id, is_demo = agent.model_id, agent.account.is_demo
    db.session.commit()
    flash("Saved." if changed else "Nothing was changed.")
    # asked where no transaction is open
    if "model_id" in changed and (
        warning := warning_about(model_id, current_settings(), is_demo=is_demo)
    ):
        flash(f"Check the model, because sessions may fail: {warning}.", "warn")
    return redirect(url_for("agent_settings.page", agent_id=agent_id), 303)


@pages.post("/agents/<int:agent_id>/pause")
@scope.admins_only
def pause(agent_id: int) -> ResponseReturnValue:
    agent = scope.agent_or_404(agent_id)
    is_wanted = request.form.get("paused") == "1"
    configuring.configure(agent, user=scope.user(), paused=is_wanted)
    db.session.commit()
    flash(
        "Paused: only manual sessions run."
        if is_wanted
        else "Resumed: automatic sessions run again."
    )
    return redirect(url_for("agent.page", agent_id=agent_id), 303)


@pages.post("/agents/<int:agent_id>/refinement-prompt/clear")
@scope.admins_only
def clear_prompt(agent_id: int) -> ResponseReturnValue:
    agent = scope.agent_or_404(agent_id)
    attempt(
        lambda: configuring.clear_refinement_prompt(agent, user=scope.user()),
        "Refinement prompt cleared: sessions now use the default.",
    )
    return redirect(url_for("agent_settings.page", agent_id=agent_id), 303)


@pages.get("/agents/<int:agent_id>/erasure")
@scope.admins_only
@scope.password_confirmed
def erasure(agent_id: int, error: Exception | None = None) -> str:
    agent, delay = scope.agent_or_404(agent_id), in_days(agent_erasure.DELAY)
    return render_template("agent/erasure.html", agent=agent, error=error, delay=delay)


@pages.post("/agents/<int:agent_id>/erasure")
@scope.admins_only
@scope.password_confirmed
@shown_again(erasure)
def erase(agent_id: int) -> ResponseReturnValue:
    agent = scope.agent_or_404(agent_id)
    erase_at = agent_erasure.request(agent, user=scope.user())
    db.session.commit()
    flash(f"{agent.name} is erased for good on {minute(erase_at)}, unless it is called off.")
    return redirect(url_for("agent.page", agent_id=agent_id), 303)


@pages.post("/agents/<int:agent_id>/erasure/call-off")
@scope.admins_only
def call_off_erasure(agent_id: int) -> ResponseReturnValue:
    agent = scope.agent_or_404(agent_id)
    done = f"Called off: {agent.name} is not erased."
    attempt(lambda: agent_erasure.call_off(agent, user=scope.user()), done)
    return redirect(url_for("agent.page", agent_id=agent_id), 303)


def _sent_settings(agent: Agent, form: Mapping[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if "model_id" in form:
        fields["model_id"] = _model_id(agent, form["model_id"].strip())
    if "core_token_budget" in form:
        fields["core_token_budget"] = whole_number(form["core_token_budget"], "core_token_budget")
    if "refinement_threshold" in form:
        fields["refinement_threshold"] = form["refinement_threshold"].strip() or None
    # browsers do not send an unticked box: a hidden field tells that the form has it
    for box in ("paused", "active"):
        if f"has_{box}" in form or box in form:
            fields[box] = form.get(box) == "1"
    return fields


def _model_id(agent: Agent, model_id: str) -> str:
    return agent.model_id if model_id == masked_id(agent.model_id) else model_id


def _stored(agent: Agent) -> dict[str, Any]:
    return {
        "model_id": agent.model_id,
        "core_token_budget": agent.core_token_budget,
        "refinement_threshold": agent.refinement_threshold,
        "paused": agent.paused,
        "active": agent.active,
    }
