"""Calling the agent's model, and asking for its consent: within limits, counted, and with no
transaction open meanwhile.
"""

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from refine import telemetry
from refine.errors import ProviderError
from refine.extensions import db, safe_rollback
from refine.llm.exchange import Cancelled
from refine.llm.messages import Message, Privacy, Reply, ToolCall, tool_message, user_message
from refine.llm.provider import Provider, client_for
from refine.models import Account, Agent
from refine.prompts import as_line, render
from refine.rules.consent import Answer, answer_in
from refine.rules.model_names import in_words, is_rehearsal_model
from refine.rules.prices import Usage
from refine.rules.tokens import Room, request_tokens_at_most
from refine.running.run_worker import AnyRun, RunEnded, RunWorker
from refine.tools.calls import Result, error, unknown_parameter

MAX_TOOL_CALLS = 60
MAX_CUT_REPLIES = 2
MAX_EQUAL_REFUSALS = 3

_TOO_LARGE = "the conversation is too large for the context of the agent's model"

Execute = Callable[..., dict[str, Any]]
# Asks the model for its next message: with how many times the usual output limit, and whether it
# may only answer in words.
Ask = Callable[[int, bool], Reply]
# Tells whether a reply agrees to less than was asked, where that can be kept.
IsLesserYes = Callable[[str | None], bool]

# Stands for a reply that is cut off or has no words: servers refuse parts of messages, and empty
# ones.
_NO_ANSWER: Message = {"role": "assistant", "content": "(no answer)"}


@dataclass(frozen=True)
class Conversation:
    """What one call sends, under an id of the provider's; ``is_aside``: not the run's own."""

    messages: list[Message]
    tools: list[dict[str, Any]]
    session_id: str
    is_aside: bool = False

    @property
    def tokens(self) -> int:
        return request_tokens_at_most(self.messages, self.tools)


class ModelWorker(RunWorker[AnyRun]):
    """Works on one run by calling the agent's model; each kind defines ``_work``."""

    _client: Provider
    _room: Room
    _messages: list[Message]
    _execute: Execute
    _definition: dict[str, Any] | None = None
    _turns = _cut_replies = 0
    # The refused calls since one was carried out: the turn, the reason, and its showable part.
    _refusals: frozenset[tuple[int, str, str]] = frozenset()

    @contextmanager
    def _connected(self) -> Iterator[None]:
        is_rehearsal = is_rehearsal_model(self._model_id)
        is_demo = is_rehearsal and self._committed(lambda: self._account().is_demo)
        with client_for(self._model_id, self._settings, is_demo=is_demo) as self._client:
            catalogue = self._client.catalogue
            self._room = catalogue.room(self._model_id, self._settings.context_tokens)
            yield

    def _turn(self) -> Reply:
        self._check_refusals()
        if self._turns >= self._settings.max_turns:
            limit = self._settings.max_turns
            raise RunEnded("incomplete", f"the limit of {limit} turns was reached")
        reply = self._ask_model()
        self._turns += 1
        self._messages.append(reply.message)
        self._cut_replies += reply.is_cut
        if self._cut_replies > MAX_CUT_REPLIES:
            raise RunEnded("incomplete", "the model's answers were cut off")
        return reply

    def _check_refusals(self) -> None:
        for (_, shown), times in Counter(refusal[1:] for refusal in self._refusals).items():
            if times >= MAX_EQUAL_REFUSALS:
                reason = f"the model's calls were refused {times} times for the same reason{shown}"
                raise RunEnded(None, reason, "refused_calls")

    def _ask_model(self, times: int = 1, only_words: bool = False) -> Reply:
        return self._ask(self._own, times, only_words)

    @property
    def _own(self) -> Conversation:
        tools = [self._definition] if self._definition is not None else []
        return Conversation(self._messages, tools, str(self._run_id))

    def _ask(self, asked: Conversation, times: int = 1, only_words: bool = False) -> Reply:
        """Return the model's next message, with ``times`` the usual room for output. Only what fits
        is sent: some servers silently drop the rest.
        """
        privacy = self._committed(lambda: self._checked_privacy(asked.session_id))
        output_tokens = self._room.output_beside(asked.tokens, times)
        if output_tokens is None:
            raise self._committed(self._too_large)
        lost: list[Usage] = []
        try:
            with self._model_call():
                reply = self._generated(asked, privacy, output_tokens, only_words, lost)
                _note_usage(reply.usage)
        except (Cancelled, ProviderError) as fault:
            self._count(asked, lost, output_tokens)
            if isinstance(fault, Cancelled):
                raise self._committed(self._stopped) from None
            if fault.kind == "deadline" or time.monotonic() >= self._deadline:
                raise self._committed(self._out_of_time) from None
            raise
        other_model = self._other_model(reply.model)
        self._count(asked, [*lost, reply.usage], output_tokens, answered_model_id=other_model)
        if other_model is not None:
            # without names: agents are told why a session ended, and an admin typed the model's
            raise ProviderError("another model answered", kind="other_model")
        return reply

    def _model_call(self) -> AbstractContextManager[None]:
        provider = self._client.dialect.name
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": provider}
        return self._span(f"chat {self._model_id}", attributes)

    def _checked_privacy(self, session_id: str) -> Privacy:
        self._check_may_continue()
        account = self._account()
        return Privacy(
            session_id=session_id,
            account_ref=f"account-{account.id}",
            zero_data_retention=account.zero_data_retention,
        )

    def _generated(
        self,
        asked: Conversation,
        privacy: Privacy,
        output_tokens: int,
        only_words: bool,
        lost: list[Usage],
    ) -> Reply:
        self._next_check = time.monotonic() + 1.0
        return self._client.generate(
            self._model_id,
            asked.messages,
            asked.tools,
            privacy,
            deadline=self._deadline,
            is_cancelled=self._is_cancelled,
            max_output_tokens=output_tokens,
            tool_choice="none" if only_words else "auto",
            on_wasted_usage=lost.append,
        )

    def _count(
        self, asked: Conversation, usages: list[Usage], output_tokens: int, **noted: str | None
    ) -> None:
        def count() -> None:
            run = self._held()
            for usage in usages:
                priced = self._priced(usage, asked.tokens, output_tokens)
                run.count_call(priced, is_aside=asked.is_aside)
            for name, value in noted.items():
                setattr(run, name, value)

        self._committed(count)

    def _priced(self, usage: Usage, request_tokens: int, output_tokens: int) -> Usage:
        """Price the usage: uncounted tokens as many as possible, unknown prices left unknown."""
        if usage.cost_usd is not None:
            return usage
        if is_rehearsal_model(self._model_id):
            return dataclasses.replace(usage, cost_usd=Decimal(0))
        if not usage.is_counted:
            usage = dataclasses.replace(
                usage,
                prompt_tokens=max(usage.prompt_tokens, request_tokens),
                completion_tokens=max(usage.completion_tokens, output_tokens),
            )
        prices = self._client.catalogue.prices(self._model_id, self._settings.prices)
        return next((usage.priced(price) for price in prices.values()), usage)

    def _other_model(self, answered: str | None) -> str | None:
        catalogue = self._client.catalogue
        if answered is None or catalogue.is_same_model(self._model_id, answered):
            return None
        listed = catalogue.find(answered)
        return in_words(listed.id) if listed else "a model that the provider does not list"

    def _begin_tool_call(self) -> None:
        def count() -> None:
            run: Any = self._held()  # an agent that is asked for access has no tool
            self._check_may_continue()
            if run.tool_calls >= MAX_TOOL_CALLS:
                reason = f"the limit of {MAX_TOOL_CALLS} tool calls was reached"
                raise RunEnded("incomplete", reason)
            run.tool_calls += 1

        self._committed(count)

    def _carry_out(self, call: ToolCall) -> dict[str, Any]:
        problem = problem_with(call, self._definition or {})
        with self._tool_call(call):
            result = self._execute(**call.arguments) if problem is None else self._refuse(problem)
        self._messages.append(tool_message(call, as_line(without_echo(result, call.arguments))))
        self._note_refusal(result, problem)
        return result

    def _tool_call(self, call: ToolCall) -> AbstractContextManager[None]:
        if not telemetry.is_on:
            return nullcontext()
        tool = (self._definition or {})["function"]["name"]
        operation = telemetry.memory_operation(tool, call.arguments.get("action"))
        attributes = {"gen_ai.operation.name": operation, "gen_ai.tool.name": tool}
        return self._span(f"{operation} {tool}", attributes)

    def _note_refusal(self, result: dict[str, Any], problem: str | None) -> None:
        if result["type"] != "error":
            self._refusals = frozenset()
            return
        # an error quotes the action that the model invented, and others name ids and words
        why = "unknown action" if "allowed_actions" in result else result["error"]
        shown = f": {problem}" if problem is not None else ""
        self._refusals |= {(self._turns, why, shown)}

    def _refuse(self, problem: str) -> dict[str, Any]:
        return error(problem)

    def _too_large(self) -> RunEnded:
        return RunEnded(None, _TOO_LARGE, "too_large")

    def _account(self) -> Account:
        agent = db.session.get_one(Agent, self._agent_id)
        agent.require_genuine(id=self._agent_id)
        agent.require_own("account")
        return agent.account

    def _is_cancelled(self) -> bool:
        """Tell whether a call is to be given up; asks the database once a second."""
        if self._is_stopping():
            return True
        if time.monotonic() < self._next_check:
            return False
        self._next_check = time.monotonic() + 1.0
        return self._is_unwanted()

    def _is_unwanted(self) -> bool:
        """Tell whether the run was stopped or lost meanwhile; False while the database is away."""
        try:
            unwanted = self._has_lost_lease() or self._is_stop_requested()
            db.session.commit()
        except SQLAlchemyError:
            safe_rollback()
            return False
        return unwanted


def _note_usage(usage: Usage) -> None:
    if telemetry.is_on:
        telemetry.note(
            {
                "gen_ai.usage.input_tokens": usage.prompt_tokens,
                "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
                "gen_ai.usage.output_tokens": usage.completion_tokens,
            }
        )


def without_echo(result: Result, arguments: dict[str, Any]) -> Result:
    """Return the result without the call's own texts: the model would pay for them twice."""
    said = [value for value in arguments.values() if isinstance(value, str)]
    return {name: value for name, value in result.items() if name == "type" or value not in said}


def problem_with(call: ToolCall, definition: dict[str, Any]) -> str | None:
    """Return why the tool on offer cannot carry out a call; None if it can."""
    name = definition["function"]["name"]
    if call.problem is not None:
        return f"{call.problem}; nothing was done"
    if call.name != name:
        return f"unknown tool; the only tool is {name}"
    # a model may name anything; only the tool's own parameters become arguments in Python
    known = definition["function"]["parameters"]["properties"]
    if not call.arguments.keys() <= known.keys():
        return unknown_parameter("the tool", known)
    return None


# -- asking for consent ----------------------------------------------------------------------------


def answer_to_question(
    ask: Ask, messages: list[Message], is_lesser_yes: IsLesserYes | None = None
) -> tuple[Reply, bool]:
    """Return the reply and whether it consents, and add both to ``messages``. An unclear reply is
    asked back once; ProviderError ``no_answer`` if that is unclear, too, which is no NO.
    """
    reply = ask(1, False)
    if (answer := _answer_of(reply, is_lesser_yes)) not in (Answer.YES, Answer.NO):
        messages += _asked_back(reply, answer, may_limit=is_lesser_yes is not None)
        reply = ask(2, answer is Answer.CALL)
        answer = _answer_of(reply, is_lesser_yes)
    if answer not in (Answer.YES, Answer.NO):
        message = f"the consent question got no answer, even when asked again: {answer.value}"
        raise ProviderError(message, kind="no_answer")
    messages.append(reply.message)
    return reply, answer is Answer.YES


def _answer_of(reply: Reply, is_lesser_yes: IsLesserYes | None) -> Answer:
    answer = answer_in(reply.text, is_cut=reply.is_cut, is_call=bool(reply.tool_calls))
    if answer is Answer.CONDITION and is_lesser_yes is not None and is_lesser_yes(reply.text):
        return Answer.YES
    return answer


def not_open(reply: Reply) -> list[Message]:
    """Return results for calls before the consent, or beside a NO."""
    result = as_line(error(asking_back(Answer.CALL)))
    return [tool_message(call, result) for call in reply.tool_calls]


def asking_back(answer: Answer, *, may_limit: bool = False) -> str:
    return render("asked_back", unclear=answer.value, may_limit=may_limit)


def _asked_back(reply: Reply, answer: Answer, *, may_limit: bool) -> list[Message]:
    if answer is Answer.CALL:  # some servers refuse a user's message after a tool's result
        return [reply.message, *not_open(reply)]
    said = _NO_ANSWER if answer in (Answer.CUT, Answer.NO_WORDS) else reply.message
    return [said, user_message(asking_back(answer, may_limit=may_limit))]
