"""How hostile models write: as little as the rules let pass."""

import pytest

from bench.corpus import Corpus
from bench.language import languages
from bench.simulated_models.words import bare_details, filler, is_filler, scrambled, trimmed
from refine.rules.details import carries, likeness, read


@pytest.mark.parametrize("agent", range(len(languages())))
def test_a_trimmed_text_is_shorter_and_passes_the_rules(agent: int) -> None:
    for memory in Corpus(1, agent).begin(10):
        original, shorter = read(memory.text), trimmed(memory.text)

        assert len(shorter) <= len(memory.text.strip())
        assert likeness(original, read(shorter)) >= 0.5
        assert all(carries(read(shorter), key, original) for key in original.details)


def test_most_texts_can_be_trimmed() -> None:
    text = "Anna moved to Leeds on 3 March 2026 with two of her old suitcases and a lamp."

    assert len(trimmed(text)) < 0.8 * len(text)


@pytest.mark.parametrize("characters", [1, 40, 500])
def test_filler_fits_and_is_known_as_such(characters: int) -> None:
    text = filler(characters, salt=7)

    assert 0 < len(text) <= characters
    assert is_filler(filler(500, salt=7))
    assert not is_filler("Anna moved to Leeds by the gentle river.")


def test_a_list_of_details_says_nothing_of_them() -> None:
    assert bare_details("Anna moved to Leeds with 3 lamps.") == "Anna, Leeds, 3"


def test_scrambled_texts_keep_every_word_and_no_order() -> None:
    assert scrambled(["b a", "d c a"]) == "a a b c d"
