"""How long pauses are."""

from datetime import timedelta

from refine.rules.pacing import (
    conversation_pause,
    cooldown,
    delivery_pause,
    is_effect,
    retry_pause,
)


def test_cooldown_doubles_with_each_fruitless_session_up_to_a_week():
    for hours, sessions_without_effect, expected_hours in (
        *((24, 0, 24), (24, 1, 48), (24, 2, 96), (24, 3, 168), (24, 4, 168), (24, 10_000, 168)),
        *((1, 0, 1), (1, 1, 2), (1, 7, 128), (1, 8, 168), (6, 4, 96), (168, 0, 168), (168, 3, 168)),
    ):
        expected = timedelta(hours=expected_hours)
        assert cooldown(hours, sessions_without_effect) == expected, (
            hours,
            sessions_without_effect,
        )


def test_an_effect_is_a_hundredth_of_the_mass_at_least():
    for removed, mass, expected in ((0, 0, False), (0, 9, False), (1, 0, True), (1, 100, True)):
        assert is_effect(removed, mass) is expected
    assert not is_effect(99, 9_901)


def test_pauses_after_failures_grow_and_end_after_three_retries():
    pauses = [retry_pause(attempt) for attempt in (1, 2, 3, 4, 5, 100)]

    minutes = [pause and pause.total_seconds() / 60 for pause in pauses]
    assert minutes == [5, 30, 120, None, None, None]


def test_a_conversation_is_tried_again_after_ever_longer_pauses_up_to_a_day():
    pauses = [conversation_pause(attempt) for attempt in (1, 3, 4, 6, 7, 10_000)]

    assert [pause.total_seconds() / 3600 for pause in pauses[1:]] == [2, 4, 16, 24, 24]
    assert pauses[0] == timedelta(minutes=5)


def test_an_event_is_given_up_after_ten_attempts_within_three_days():
    pauses = [delivery_pause(attempt) for attempt in range(1, 11)]

    assert pauses[-1] is None
    assert [pause.total_seconds() / 60 for pause in pauses[:4] if pause] == [1, 5, 30, 120]
    assert sum(filter(None, pauses), timedelta(0)) == timedelta(days=2, hours=23, minutes=36)
