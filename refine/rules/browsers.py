"""Which browser a User-Agent names: one word of a closed list, roughly."""

# In this order: most of them name others, too.
_MARKS = {
    "Edg": "Edge",
    "OPR/": "Opera",
    "Firefox/": "Firefox",
    "FxiOS/": "Firefox",
    "Chrome/": "Chrome",
    "CriOS/": "Chrome",
    "Safari/": "Safari",
}
OTHER = "other"
BROWSERS = (*dict.fromkeys(_MARKS.values()), OTHER)


def browser_named(user_agent: str) -> str:
    return next((word for mark, word in _MARKS.items() if mark in user_agent), OTHER)
