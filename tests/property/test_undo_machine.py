"""Random sessions, toggles and undos against the reference model: what was comes back, or stays."""

from typing import Any

import pytest
from flask import Flask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.machine import Life, lengths, picks, tag_lists, verbs

edits = st.tuples(
    st.just("a_session_makes_one_edit"),
    st.fixed_dictionaries({"pick": st.integers(0, 1), "verb": verbs}),
)
undos = st.tuples(
    st.sampled_from(
        ["an_admin_undoes_a_session", "an_admin_undoes_a_session_and_everything_after_it"]
    ),
    st.fixed_dictionaries({"pick": picks}),
)
changes = st.tuples(
    st.sampled_from(["an_admin_toggles_the_flag", "an_admin_discards_or_restores"]),
    st.fixed_dictionaries({"pick": picks}),
)
saves = st.tuples(
    st.just("the_agent_saves_in_a_chat"),
    st.fixed_dictionaries({"size": lengths, "kind": st.just("core"), "tags": st.just(())}),
)
copies = st.tuples(
    st.just("an_import_brings_a_copy"), st.fixed_dictionaries({"pick": picks, "tags": tag_lists})
)


@pytest.mark.parametrize("examples", [6, pytest.param(60, marks=pytest.mark.nightly)])
def test_every_sequence_of_sessions_toggles_and_undos_leaves_the_expected_memories(
    app: Flask, examples: int
) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        sizes=st.lists(lengths, min_size=5, max_size=8),
        deeds=st.lists(
            edits | edits | undos | undos | changes | saves | copies, min_size=10, max_size=20
        ),
    )
    def holds(sizes: list[int], deeds: list[tuple[str, dict[str, Any]]]) -> None:
        life = Life()
        life.begin(sizes, [])
        for deed, how in deeds:
            getattr(life, deed)(**how)
            life.every_memory_is_as_the_reference_has_it()
            life.what_was_undone_is_marked_and_counts_as_removed_no_more()
        life.every_edit_has_its_record_and_every_record_its_edit()

    holds()
