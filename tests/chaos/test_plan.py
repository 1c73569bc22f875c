"""The plan of faults follows from its seed."""

from tests.chaos.plan import _DECK, plan

TEN_MINUTES = 600.0


def test_the_same_seed_makes_the_same_plan_and_another_one_another() -> None:
    assert plan(7, TEN_MINUTES) == plan(7, TEN_MINUTES)
    assert plan(7, TEN_MINUTES) != plan(8, TEN_MINUTES)


def test_a_long_storm_has_every_kind_of_fault_on_every_kind_of_target() -> None:
    faults = plan(7, TEN_MINUTES)

    assert {(each.kind, each.target) for each in faults} >= {
        (kind, targets[0]) for kind, targets, _, _ in _DECK if len(targets) == 1
    }
    assert {each.kind for each in faults} == {kind for kind, *_ in _DECK}


def test_faults_come_in_order_and_within_their_time() -> None:
    for seconds in (20.0, TEN_MINUTES):
        times = [each.at for each in plan(7, seconds)]

        assert times == sorted(times)
        assert times[-1] < seconds


def test_no_fault_lasts_longer_than_a_third_of_a_short_storm() -> None:
    assert all(each.seconds <= 10.0 for seed in range(20) for each in plan(seed, 30.0))
