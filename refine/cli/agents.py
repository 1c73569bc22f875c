"""Agents, managed on the server's command line."""

from typing import Any

import click
from sqlalchemy import select
from sqlalchemy.orm import joinedload

from refine import settings
from refine.cli.context import Group
from refine.cli.output import Field, print_json, print_list, print_one, row_of
from refine.cli.parameters import account_option, agent_argument, json_option, limit_option
from refine.extensions import db
from refine.llm.provider import require_one_model, warning_about
from refine.models import Account, Agent, agent_erasure
from refine.models.agent import configuring, eligibility
from refine.models.agent_list import STATES, is_in
from refine.rules.personal import masked_id

_DEFAULT = "default"


def _state(agent: Agent) -> str:
    is_over = agent.over_budget and agent.active
    shown = {"not active": not agent.active, "paused": agent.paused, "over budget": is_over}
    return ", ".join(name for name, is_true in shown.items() if is_true) or "within budget"


_LISTED = (
    Field("id", "id"),
    Field("name", "name"),
    Field("account", "account", "account.slug"),
    Field("model_id", "model", lambda agent: masked_id(agent.model_id)),
    Field("core_memories", "memories", "core_count"),
    Field("core_tokens", "tokens"),
    Field("core_token_budget", "budget"),
    Field("over_budget"),
    Field("state", "state", _state),
    Field("refinement_threshold", None, "effective_refinement_threshold"),
    Field("active"),
    Field("paused"),
    Field("last_session_id"),
    Field("last_session_status"),
    Field("last_session_at"),
    Field("created_at"),
)
_SHOWN = (
    *_LISTED,
    Field("next_session_at", None, eligibility.next_session_at),
    Field("reflects_daily"),
    Field("erased", None, "is_erased"),
    Field("erase_at"),
)


@click.group(cls=Group)
def agent() -> None:
    """Manage agents."""


@agent.command("add")
@click.argument("name")
@click.option("--account", "slug", required=True, help="The slug of the agent's account.")
@click.option("--model", "model_id", required=True, help="The provider's name for its model.")
def agent_add(name: str, slug: str, model_id: str) -> str:
    """Add the agent NAME and print its id.

    Warns if the provider does not list its model, or lists it without tools.
    """
    require_one_model(model_id, settings.current())
    owner = Account.by_slug(slug)
    made = Agent.create(owner, name=name, model_id=model_id, actor={"by": "command line"})
    agent_id, model_id, is_demo = made.id, made.model_id, owner.is_demo
    db.session.commit()
    _warn_about(model_id, is_demo=is_demo)
    return str(agent_id)


@agent.command("erase")
@agent_argument
@click.option("--for-good", is_flag=True, help="Confirm that the content cannot come back.")
@click.option("--now", "is_now", is_flag=True, help="With --for-good: at once, not in seven days.")
@click.option("--call-off", is_flag=True, help="Let the agent live after all.")
def agent_erase(reference: str, for_good: bool, is_now: bool, call_off: bool) -> str:
    """Destroy AGENT's data key in seven days: its memories and prompts become unreadable for good.

    Until then it works as before, everybody in its account sees it, and every admin can call it
    off. Its figures and audit records stay. Backups that hold the key can still be read.
    """
    if for_good == call_off or (is_now and not for_good):
        raise click.UsageError("give --for-good, with --now to erase it at once, or --call-off")
    found = Agent.named(reference)
    named = f"{found.name} (agent {found.id})"
    if call_off:
        agent_erasure.call_off(found)
        return f"{named} is not erased"
    if is_now:
        found.erase(by="command line")
        return f"erased {named}"
    erase_at = agent_erasure.request(found)
    return (
        f"{named} is erased for good on {erase_at:%Y-%m-%d %H:%M} UTC; until then, "
        f"`refine agent erase {found.id} --call-off` calls it off"
    )


@agent.command("list")
@account_option
@click.option("--state", type=click.Choice(list(STATES)), help="Only agents in this state.")
@limit_option
@json_option
def agent_list(slug: str | None, state: str | None, limit: int, as_json: bool) -> None:
    """List agents and their figures, sorted by id.

    Example: refine agent list --state over_budget --json
    """
    wanted = select(Agent).options(joinedload(Agent.account))
    if slug is not None:
        wanted = wanted.where(Agent.account_id == Account.by_slug(slug).id)
    if state is not None:
        wanted = wanted.where(is_in(state))
    found = db.session.scalars(wanted.order_by(Agent.id).limit(limit + 1)).all()
    print_list(
        found,
        _LISTED,
        as_json=as_json,
        limit=limit,
        empty="no agents; `refine agent add NAME --account SLUG --model ID` adds one",
    )


@agent.command("show")
@agent_argument
@json_option
def agent_show(reference: str, as_json: bool) -> None:
    """Show AGENT (id or name): its settings and figures, no memory and no prompt."""
    found = Agent.named(reference)
    if as_json:
        print_json(row_of(found, _SHOWN))
    else:
        print_one(found, _SHOWN)


@agent.command("set")
@agent_argument
@click.option("--model", "model_id", help="The provider's name for its model.")
@click.option("--budget", "core_token_budget", type=int, help="Core memory budget, in tokens.")
@click.option(
    "--threshold",
    "refinement_threshold",
    help="Retention threshold: the share of its memory that a session must leave in place, such as "
    "0.8, or `default`.",
)
@click.option(
    "--active/--inactive",
    default=None,
    help="Enable or disable all sessions, other tasks, access requests and tokens of the agent.",
)
@click.option(
    "--paused/--resumed", default=None, help="Stop automatic sessions of the agent, or allow them."
)
def agent_set(reference: str, **options: Any) -> str:
    """Change settings of AGENT (id or name), as on its *Settings* page.

    The change is recorded. A new model is noted in the agent's journal; prints a warning if the
    provider does not list the model, or lists it without tools.

    Example: refine agent set Wren --budget 6000 --threshold 0.8
    """
    fields = {name: value for name, value in options.items() if value is not None}
    if not fields:
        raise click.UsageError("give at least one option, such as --budget 6000")
    if fields.get("refinement_threshold") == _DEFAULT:
        fields["refinement_threshold"] = None
    found = Agent.named(reference)
    changed = configuring.configure(found, by="command line", **fields)
    named = f"{found.name} (agent {found.id})"
    model_id, is_demo = found.model_id, found.account.is_demo
    if "model_id" in changed:
        require_one_model(model_id, settings.current())
    db.session.commit()
    if "model_id" in changed:
        _warn_about(model_id, is_demo=is_demo)
    outcome = f"{', '.join(changed)} changed" if changed else "as before"
    return f"{named}: {outcome}"


def _warn_about(model_id: str, *, is_demo: bool) -> None:
    """Say why sessions with a new model would fail; no transaction is open meanwhile."""
    warning = warning_about(model_id, settings.current(), is_demo=is_demo)
    if warning is not None:
        click.echo(f"refine: warning: sessions may fail: {warning}", err=True)
