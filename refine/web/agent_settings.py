"""The settings of one agent, prompts but under a grant only by length and change; its erasure."""

from typing import Any

from flask import flash, redirect, render_template, request, url_for
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
from refine.web import forms, granted, scope
from refine.web.words import minute

pages = scope.area("agent_settings")

_STORED: forms.Readers = {
    "model_id": str.strip,
    "core_token_budget": lambda text: forms.whole_number(text, "core_token_budget"),
    "refinement_threshold": lambda text: text.strip() or None,
    "paused": forms.is_ticked,
    "active": forms.is_ticked,
}


@pages.get("/agents/<int:agent_id>/settings")
def page(agent_id: int, error: Exception | None = None) -> str:
    agent = scope.agent_or_404(agent_id)
    opened = None if error else granted.prompts(agent.id)
    stored = forms.stored_fields(agent, _STORED)
    unticked = {box: "" for box in ("paused", "active") if f"has_{box}" in request.form}
    return render_template(
        "agent/settings.html",
        agent=agent,
        error=error,
        values={**stored, **unticked, **request.form},
        drawn_from=forms.version_to_send(stored, error),
        default_threshold=DEFAULT_THRESHOLD,
        max_name=MAX_NAME_CHARACTERS,
        identity_change_wait=in_hours(IDENTITY_CHANGE_WAIT),
        opened=opened,
        prompts=configuring.prompt_lengths(agent),
        last_changes=configuring.last_prompt_changes(agent),
    )


@pages.post("/agents/<int:agent_id>/settings")
@scope.admins_only
@forms.shown_again(page)
def configure(agent_id: int) -> ResponseReturnValue:
    agent = scope.agent_or_404(agent_id)
    agent.lock()
    fields = _sent_settings(agent)
    forms.require_current(forms.stored_fields(agent, _STORED), fields)
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
    paused, resumed = "Paused: only manual sessions run.", "Resumed: automatic sessions run again."
    return forms.done(paused if is_wanted else resumed, url_for("agent.page", agent_id=agent_id))


@pages.post("/agents/<int:agent_id>/refinement-prompt/clear")
@scope.admins_only
def clear_prompt(agent_id: int) -> ResponseReturnValue:
    agent = scope.agent_or_404(agent_id)
    return forms.attempt(
        lambda: configuring.clear_refinement_prompt(agent, user=scope.user()),
        "Refinement prompt cleared: sessions now use the default.",
        url_for("agent_settings.page", agent_id=agent_id),
    )


@pages.get("/agents/<int:agent_id>/erasure")
@scope.confirmed_admins_only
def erasure(agent_id: int, error: Exception | None = None) -> str:
    agent, delay = scope.agent_or_404(agent_id), in_days(agent_erasure.DELAY)
    return render_template("agent/erasure.html", agent=agent, error=error, delay=delay)


@pages.post("/agents/<int:agent_id>/erasure")
@scope.confirmed_admins_only
@forms.shown_again(erasure)
def erase(agent_id: int) -> ResponseReturnValue:
    agent = scope.agent_or_404(agent_id)
    erase_at = agent_erasure.request(agent, user=scope.user())
    said = f"{agent.name} is erased for good on {minute(erase_at)}, unless it is called off."
    return forms.done(said, url_for("agent.page", agent_id=agent_id))


@pages.post("/agents/<int:agent_id>/erasure/call-off")
@scope.admins_only
def call_off_erasure(agent_id: int) -> ResponseReturnValue:
    agent = scope.agent_or_404(agent_id)
    said, url = f"Called off: {agent.name} is not erased.", url_for("agent.page", agent_id=agent_id)
    return forms.attempt(lambda: agent_erasure.call_off(agent, user=scope.user()), said, url)


def _sent_settings(agent: Agent) -> dict[str, Any]:
    fields = forms.sent_fields(_STORED)
    # browsers do not send an unticked box: a hidden field tells that the form has it
    for box in ("paused", "active"):
        if f"has_{box}" in request.form:
            fields.setdefault(box, False)
    if fields.get("model_id") == masked_id(agent.model_id):
        fields["model_id"] = agent.model_id
    return fields
