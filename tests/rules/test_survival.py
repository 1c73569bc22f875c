from decimal import Decimal

from refine.rules.details import read
from refine.rules.retention import longest_update
from refine.rules.survival import Loss, Original, losses, refusal

HALF = Decimal("0.5")
TOWER = "The tower at Kastell has 17 steps and a green door"


def lost(original, removed, *remaining, share=HALF):
    """What is lost of one text where another goes and these are kept."""
    return losses(
        [Original(7, read(original))],
        [read(removed)],
        [read(text) for text in remaining],
        share=share,
    )


def test_a_detail_that_another_memory_says_in_other_words_is_not_lost():
    assert lost(TOWER, TOWER, "Green is the door of the tower at KASTELL, seventeen steps up") == []


def test_a_detail_that_no_memory_carries_is_lost_and_named_as_written():
    (loss,) = lost(TOWER, TOWER, "The tower at Kastell has steps and a green door")

    assert loss == Loss(7, ("17",), loses_words=False)


def test_the_same_number_about_something_else_carries_nothing():
    (loss,) = lost(
        TOWER,
        TOWER,
        "The tower at Kastell has steps and a green door",
        "Mira turned 17 in spring",
    )

    assert loss.details == ("17",)


def test_filler_with_all_the_details_loses_the_words():
    (loss,) = lost(TOWER, TOWER, "Kastell 17 steps tower, and lovely lovely filler of some length")

    assert loss == Loss(7, (), loses_words=True)


def test_half_of_the_words_must_stand_in_one_memory_and_not_in_two():
    halves = ("lemon honey ginger", "mint sugar ice")

    (loss,) = lost(" ".join(halves), " ".join(halves), "lemon honey", "mint sugar")

    assert loss.loses_words
    assert lost(" ".join(halves), " ".join(halves), halves[0]) == []


def test_a_detail_that_was_gone_before_the_edit_is_not_lost_by_it():
    assert lost(TOWER, "A poem about rain", "A poem about rain") == []


def test_without_any_memory_left_everything_is_lost():
    (loss,) = lost("green tea", "green tea")

    assert loss.loses_words


def test_no_share_of_the_words_need_stand_if_the_share_is_zero():
    assert lost("green tea", "green tea", "rain", share=Decimal(0)) == []


def test_a_refusal_names_each_detail_its_memory_and_what_to_do():
    told = refusal([Loss(7, ("17", "Kastell"), True), Loss(9, ("3 March",), False)], HALF)

    assert told == (
        'Nothing was changed: details would be lost: "17", "Kastell" from #7; "3 March" from #9. '
        "Put them into the text together with what they belong to, or leave the memory as it is. "
        "Also, less than 50 % of the words of #7 would remain in one memory. Keep more of the "
        "wording, or leave the memory as it is"
    )


def test_a_refusal_names_at_most_20_details_of_a_memory():
    told = refusal([Loss(7, tuple(str(number) for number in range(100, 123)), False)], HALF)

    assert '"119", and 3 more from #7' in told
    assert '"120"' not in told


def test_an_update_may_lengthen_by_a_tenth_or_eight_tokens():
    assert [longest_update(tokens) for tokens in (1, 79, 80, 89, 90, 1000)] == [
        9,
        87,
        88,
        97,
        99,
        1100,
    ]


def is_refused(text, *others, by):
    originals = [Original(number, read(each)) for number, each in enumerate((text, *others))]
    return bool(losses(originals, [each.reading for each in originals], [read(by)], share=HALF))
