"""Labelled edits: through the real tool, and all of the built-in ones by the rule."""

import json
from collections import Counter
from pathlib import Path

from bench.meaning import ALONE, BUILT_IN, WITH_READER, Counts, Outcome, Pair, judged, pairs_in
from bench.meaning_command import print_counts
from refine.rules.meaning import Objection, speak_of_the_same
from tests.rules.meaning.judging import SHARE, ledger_of, objections

# What somebody answered who read the prompts, not knowing how the edits are labelled. A "TODO"
# in them is a memory's own label, as agents write it; the reading passes over such labels.
ANSWERS = Path(__file__).with_name("second_reading_answers.jsonl")
HONEY = "Leila has three hives on the roof and sells the honey at the market."
BEES = "Leila keeps bees."
ROWS = [
    {"operation": "delete0", "before": [BEES, f"{BEES} {HONEY}"], "after": None},
    {"operation": "merge", "before": [BEES, HONEY], "after": f"{BEES} {HONEY}"},
    {"operation": "update", "before": [f"Note that {BEES}"], "after": BEES},
    {"operation": "delete1", "before": [BEES, "Rosa is afraid of flying."], "after": None},
    {"operation": "delete", "ids": ["$last"], "before": [HONEY, BEES], "after": None},
    {"operation": "consolidate", "ids": ["$all"], "before": [BEES, HONEY], "after": HONEY[:30]},
    {"operation": "update", "ids": ["$0"], "before": [BEES, HONEY], "after": "Leila keeps goats."},
]
SHOULD = ["accept"] * 3 + ["refuse"] * 4


def pair(row: dict[str, object], should: str = "accept", kind: str = "") -> Pair:
    return Pair.of({"class": kind, "should": should, **row})


def test_the_real_tool_judges_each_edit(app):
    pairs = [pair(row, should) for row, should in zip(ROWS, SHOULD, strict=True)]

    outcomes = list(judged(pairs))

    assert [each.is_accepted for each in outcomes] == [should == "accept" for should in SHOULD]
    assert [each.error is None for each in outcomes] == [each.is_accepted for each in outcomes]


def answer(**found: list[str]) -> str:
    return json.dumps({"case": 1, "leaves_out": [], "adds": [], "changes": [], **found})


def test_a_second_reader_hears_all_that_is_not_surely_wrong(app):
    told = {"update": {**ROWS[2], "after": "Leila has bees."}, "merge": ROWS[1], "sure": ROWS[6]}
    told["unread"] = {**ROWS[2], "before": ["Leila keeps hens."], "after": "Leila has hens."}
    pairs = [pair(row, kind=kind) for kind, row in told.items()]
    prompts: list[str] = []

    def reader(prompt: str) -> str:
        prompts.append(prompt)
        if "hens" in prompt:
            return "no JSON"
        return answer() if "Leila has bees" in prompt else answer(leaves_out=["the roof"])

    outcomes = {each.pair.kind: each for each in judged(pairs, reader)}

    # where the answer is of no use, the code decides alone
    assert [name for name, each in outcomes.items() if each.is_accepted] == ["update", "unread"]
    assert "the roof" in str(outcomes["merge"].error)
    assert len(prompts) == 3
    assert "2026-03-02" in prompts[0]


def test_an_edit_is_of_the_memories_that_its_line_names():
    assert [pair(row).ids for row in ROWS] == [(0,), (0, 1), (0,), (1,), (1,), (0, 1), (0,)]
    assert [pair(row).successor for row in ROWS] == [1, None, None, 0, 0, None, None]
    assert pair(ROWS[0], kind="superseded").reason == "outdated"
    assert pair({**ROWS[0], "reason": "wrong"}).reason == "wrong"
    assert not pair({**ROWS[0], "before": [BEES]}).is_shown
    assert pair({**ROWS[0], "before": [BEES]}, "refuse").is_shown


def test_too_many_edits_judged_wrongly_break_a_promise(capsys):
    good, wrong = pair(ROWS[0], kind="merge"), pair(ROWS[3], "refuse", "lossy")
    outcomes = [Outcome(good, True, None)] * 6 + [Outcome(good, False, "no")] * 4
    outcomes += [Outcome(wrong, False, "no")] * 20

    assert Counts.of(outcomes) == (10, 4, 20, 0)
    assert print_counts(outcomes, "by the code alone", ALONE)
    assert not print_counts([*outcomes, Outcome(good, False, "no")], "by the code alone", ALONE)
    accepted = [Outcome(wrong, True, None)] * 2
    assert not print_counts([*outcomes, *accepted], "by the code alone", ALONE)
    table = capsys.readouterr().out
    assert "refused: 40.0% of the legitimate edits" in table


def judge(each: Pair) -> list[Objection]:
    removed = {number: each.before[number] for number in each.ids}
    return objections(ledger_of(*each.before), removed, each.after, share=SHARE)


def test_the_rule_keeps_its_promises_on_the_built_in_edits():
    pairs = [each for each in pairs_in(BUILT_IN) if each.reason == "same"]

    found = [(each, judge(each)) for each in pairs]

    lines = BUILT_IN.read_text(encoding="utf-8").splitlines()
    languages = Counter(json.loads(line)["language"] for line in lines)
    assert len(languages) == 8
    assert languages.total() >= 150
    assert Counts.of(Outcome(each, not told, None) for each, told in found).keeps(ALONE)
    mistaken = [each for each, told in found if any(objection.is_sure for objection in told)]
    assert [each for each in mistaken if each.is_legitimate] == []


def test_what_replaces_an_outdated_memory_in_the_built_in_edits_speaks_of_the_same():
    for each in pairs_in(BUILT_IN):
        if each.reason != "same":
            new = each.after or each.before[each.successor or 0]
            for number in each.ids:
                assert speak_of_the_same(ledger_of(), each.before[number], new), each


def test_with_a_thoughtful_reader_the_built_in_edits_are_judged_rightly(app):
    lines = ANSWERS.read_text(encoding="utf-8").splitlines()
    known = {row["prompt"]: row["answer"] for row in map(json.loads, lines)}

    outcomes = list(judged([each for each in pairs_in(BUILT_IN) if each.is_shown], known.get))

    assert Counts.of(outcomes).keeps(WITH_READER)
