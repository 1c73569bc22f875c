"""What a session of ten changes costs in tokens, compared with a naive layout of its prompts.

Tokens are estimated from the text that a model reads: the tools first, as providers put them, then
the role and the text of each message.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from os.path import commonprefix
from typing import Any, NamedTuple

import click

from bench.corpus import Corpus, Shares
from bench.lives import Life
from bench.playing import MODEL_PREFIX, reply
from bench.simulated_models import Conversation, Step
from bench.simulated_models.careful import in_groups, united, united_text
from bench.simulated_models.conversation import Entry, consolidation, update
from bench.simulated_models.readers import SECOND_READING
from bench.simulated_models.understanding import meaning
from bench.temporary import settings_for, temporary_database, temporary_folder
from refine.cli.output import console, table
from refine.extensions import db
from refine.llm import rehearsal
from refine.llm.messages import Message, user_message
from refine.models import Account, Agent, RefinementSession
from refine.refinement.loop import refine
from refine.rules.content import token_estimate
from refine.settings import Settings

CHANGES = 10
# At most this share of the naive layout's prompt tokens; second readings add at most this share;
# and at least this share of the prompts after consent is an unchanged prefix.
NAIVE_SHARE, READING_SHARE, UNCHANGED_SHARE = 0.5, 0.25, 0.9

_SMALLEST, _LARGEST = 100, 2_000
_CALLS_PER_REPLY, _MERGES, _DELETIONS = 4, 4, 3
# No exact duplicates: they would be gone before the model is asked.
_SHARES: Shares = {"near": 20, "lookalike": 12}
_SEED, _AGENT = 1, 1
# The question follows the ledger in one message, under a heading of its own. No memory can forge
# one, because none holds a line break there.
_HEADING = "\n\n# "
_COLUMNS = (
    *("memories", "layout", "requests", "prompt tokens", "completion tokens", "of naive"),
    *("unchanged prefix", "after consent", "new tokens"),
)
_LAYOUTS = ("Refine", "… with second readings", "naive")
_COMPLETE: Step = {
    "action": "complete",
    "summary": "I merged memories that restated each other, deleted those that another one already "
    "carries, and tightened the wording of a few. Every name, date and number still stands.",
}


class Exchange(NamedTuple):
    """A request's body and its answer."""

    request: dict[str, Any]
    reply: Message


@dataclass(frozen=True)
class Bill:
    """What the requests of one session come to.

    ``unchanged_tokens`` are those at the start of a request that an earlier one began with, word
    for word: what a prefix cache can serve. ``after_consent``: of all requests but the first.
    """

    requests: int
    prompt_tokens: int
    completion_tokens: int
    unchanged_tokens: int
    prompt_tokens_after_consent: int

    @classmethod
    def of(cls, exchanges: Sequence[Exchange]) -> "Bill":
        """Return the bill of these exchanges; the first one asks for consent."""
        texts = [written(each.request) for each in exchanges]
        prompts = [token_estimate(text) for text in texts]
        return cls(
            requests=len(exchanges),
            prompt_tokens=sum(prompts),
            completion_tokens=sum(token_estimate(_said(each.reply)) for each in exchanges),
            unchanged_tokens=sum(_unchanged(texts)),
            prompt_tokens_after_consent=sum(prompts[1:]),
        )

    @property
    def unchanged_share_after_consent(self) -> float:
        """The share of the prompts after consent that a prefix cache can serve."""
        return self.unchanged_tokens / self.prompt_tokens_after_consent

    def share_of(self, other: "Bill") -> float:
        """Return its prompt tokens as a share of another bill's."""
        return self.prompt_tokens / other.prompt_tokens

    def cells(self, naive: "Bill") -> tuple[str, ...]:
        """Return its row of the table."""
        return (
            f"{self.requests:,}",
            f"{self.prompt_tokens:,}",
            f"{self.completion_tokens:,}",
            f"{self.share_of(naive):.1%}",
            f"{self.unchanged_tokens / self.prompt_tokens:.1%}",
            f"{self.unchanged_share_after_consent:.1%}",
            f"{self.prompt_tokens - self.unchanged_tokens:,}",
        )


class Layout(NamedTuple):
    """What a session sends, and what its second readings send."""

    exchanges: list[Exchange]
    readings: list[Exchange]

    def bills(self) -> tuple[Bill, Bill]:
        """Return the bills without and with second readings."""
        return Bill.of(self.exchanges), Bill.of([*self.exchanges, *self.readings])

    def naively(self) -> list[Exchange]:
        """Return the same calls and results, laid out naively, without second readings.

        Consent is asked without tools; then the session starts with a fresh prompt (system prompt,
        ledger, brief), and each reply makes one call only.
        """
        consent, *turns = self.exchanges
        tools, (system, opening, _answer, brief) = (
            turns[0].request["tools"],
            turns[0].request["messages"],
        )
        ledger, _, _question = str(opening["content"]).rpartition(_HEADING)
        messages: list[Message] = [system, user_message(f"{ledger}\n\n{brief['content']}")]
        laid_out = [Exchange({"messages": consent.request["messages"]}, consent.reply)]
        for call, result in _calls(turns):
            laid_out.append(Exchange({"tools": tools, "messages": messages}, call))
            messages = [*messages, call, *result]
        return laid_out


def _sizes(_context: click.Context, _parameter: click.Parameter, value: str) -> list[int]:
    sizes = [size.strip() for size in value.split(",")]
    if not all(size.isdecimal() and _SMALLEST <= int(size) <= _LARGEST for size in sizes):
        raise click.BadParameter(f"numbers from {_SMALLEST} to {_LARGEST:,}, separated by commas")
    return sorted({int(size) for size in sizes})


@click.command("bill")
@click.option(
    "--memories",
    "sizes",
    callback=_sizes,
    default="100,500",
    show_default=True,
    help="Sizes of the ledgers, separated by commas.",
)
def bench_bill(sizes: list[int]) -> int:
    """Count the tokens of a session with ten changes, and compare them with a naive layout.

    For each size of ledger, a real session runs on a temporary database. A simulated model answers
    over HTTP: it agrees, makes ten changes, four in a reply, and completes; its second readings
    find nothing. The same calls and results are then laid out naively: a new prompt after consent,
    one call a reply, and no second reading.

    Prints the requests, the tokens of prompts and replies, the share of the prompts that repeats
    the beginning of an earlier request word for word (what a provider's prompt cache can serve),
    and the rest. Exit code 1 if the session with its second readings has more than half of the
    naive prompt tokens, they add more than a quarter to its own, or less than 90 % of the prompts
    after consent is such a repetition.
    """
    rows, broken = list[tuple[str, ...]](), list[str]()
    with temporary_folder() as folder:
        settings = settings_for(folder, REFINE_SECOND_READING="on")
        with temporary_database(settings, durable=False):
            for size in sizes:
                changes, ours = record(size, settings)
                bills = [*ours.bills(), Bill.of(ours.naively())]
                rows += [
                    (f"{size:,}", layout, *bill.cells(bills[-1]))
                    for layout, bill in zip(_LAYOUTS, bills, strict=True)
                ]
                broken += broken_promises(size, changes, *bills)
    table(_COLUMNS, rows, empty="")
    console.print(f"\nPromises: {'; '.join(broken) or 'kept'}")
    return 1 if broken else 0


def broken_promises(
    memories: int, changes: int, bill: Bill, read: Bill, naive: Bill
) -> Iterator[str]:
    """Yield the promises that a session breaks, in words; ``read``: with second readings."""
    of_naive = read.share_of(naive)
    after_consent, added = bill.unchanged_share_after_consent, read.share_of(bill) - 1
    if changes != CHANGES:
        yield f"{changes} of {CHANGES} changes made with {memories:,} memories"
    if of_naive > NAIVE_SHARE:
        yield f"{of_naive:.1%} of the naive prompt tokens with {memories:,} memories"
    if added > READING_SHARE:
        yield f"{added:.1%} more for second readings with {memories:,} memories"
    if after_consent < UNCHANGED_SHARE:
        yield f"{after_consent:.1%} unchanged after consent with {memories:,} memories"


def record(memories: int, settings: Settings) -> tuple[int, Layout]:
    """Run a session over HTTP; return its changes, and every request with its reply.

    Needs an application context on a temporary database. The memories are always the same.
    """
    recorded = Layout([], [])

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        answered = reply(body, tidying)
        is_reading = body["tools"][0]["function"]["name"] == SECOND_READING
        exchanges = recorded.readings if is_reading else recorded.exchanges
        exchanges.append(Exchange(body, answered["choices"][0]["message"]))
        return answered

    account = Account(name=f"Bill {memories}", slug=f"bill-{memories}")
    db.session.add(account)
    db.session.commit()
    life = Life(account, f"{MODEL_PREFIX}tidying", Corpus(_SEED, _AGENT, _SHARES), memories)
    session = RefinementSession.queue(db.session.get_one(Agent, life.agent_id), "weekly")
    with rehearsal.serving(answer) as url:
        refine(session.id, replace(settings, openrouter_base_url=url, openrouter_api_key="bench"))
    return session.mutation_count, recorded


# -- layouts --------------------------------------------------------------------------------------


def _calls(turns: Sequence[Exchange]) -> Iterator[tuple[Message, list[Message]]]:
    """Yield each call in a reply of its own, with its result; nothing answers the last."""
    later = [turn.request["messages"] for turn in turns[1:]]
    for (request, reply_), messages in zip(turns, [*later, []], strict=True):
        results = messages[len(request["messages"]) + 1 :]
        for call in reply_["tool_calls"]:
            answers = [each for each in results if each["tool_call_id"] == call["id"]]
            yield {**reply_, "tool_calls": [call]}, answers


def written(request: dict[str, Any]) -> str:
    """Return the text of a request: the tools, then each message."""
    tools = [json.dumps(tool, ensure_ascii=False) for tool in request.get("tools", ())]
    return "\n".join([*tools, *map(_said, request["messages"])])


def _said(message: Message) -> str:
    calls = (call["function"] for call in message.get("tool_calls") or ())
    called = [f"{call['name']} {call['arguments']}" for call in calls]
    return "\n".join([message["role"], message["content"] or "", *called])


def _unchanged(texts: Sequence[str]) -> Iterator[int]:
    for position, text in enumerate(texts):
        shared = (commonprefix([text, earlier]) for earlier in texts[:position])
        yield token_estimate(max(shared, key=len, default=""))


# -- the simulated model --------------------------------------------------------------------------


def tidying(conversation: Conversation) -> list[Step]:
    """Return the calls of the next reply: merges, deletions and tighter wordings; then the end."""
    begin = conversation.rounds * _CALLS_PER_REPLY
    changes = _changes(conversation.ledger)
    return changes[begin : begin + _CALLS_PER_REPLY] or [_COMPLETE]


def _changes(ledger: list[Entry]) -> list[Step]:
    """Return all changes of a session; fewer than ten if the ledger holds too few duplicates."""
    groups = in_groups(ledger)
    merges = [consolidation(group, united_text(group)) for group in groups[:_MERGES]]
    deletions = chain.from_iterable(map(united, groups[_MERGES:]))
    grouped = {entry.id for group in groups for entry in group}
    updates = _updates(entry for entry in ledger if entry.id not in grouped)
    return [*islice(chain(merges, islice(deletions, _DELETIONS), updates), CHANGES)]


def _updates(entries: Iterator[Entry]) -> Iterator[Step]:
    for entry in entries:
        if (shorter := _tightened(entry.content)) is not None:
            yield update(entry, shorter)


def _tightened(text: str) -> str | None:
    """Return a text without its first filler word, if it has one."""
    words = text.split(" ")
    for at in range(len(words)):
        shorter = " ".join(words[:at] + words[at + 1 :])
        if meaning(shorter) == meaning(text):
            return shorter
    return None
