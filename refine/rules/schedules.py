"""Cron expressions in plain words."""

_DAYS = ("Sundays", "Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays")


def describe_schedule(schedule: str) -> str:
    """Return a cron expression of five fields in words, or quoted if it is not a simple one."""
    minute, hour, day, month, weekday = schedule.split()
    is_one_time = minute.isdigit() and hour.isdigit()
    if not is_one_time or month != "*":
        return f"on the schedule {schedule}"
    at = f"at {int(hour):02}:{int(minute):02}"
    if day == "*" and weekday == "*":
        return f"every day {at}"
    if day == "*" and all(each.isdigit() for each in weekday.split(",")):
        named = [_DAYS[int(each) % 7] for each in weekday.split(",")]
        return f"on {_listed(named)} {at}"
    if day.isdigit() and weekday == "*":
        return f"on day {int(day)} of each month {at}"
    return f"on the schedule {schedule}"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
