"""The words for browsers."""

import pytest

from refine.rules.browsers import BROWSERS, browser_named

_WEBKIT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko)"


@pytest.mark.parametrize(
    ("user_agent", "word"),
    [
        (f"{_WEBKIT} Chrome/156.0.0.0 Safari/537.36", "Chrome"),
        (f"{_WEBKIT} HeadlessChrome/156.0.0.0 Safari/537.36", "Chrome"),
        (f"{_WEBKIT} Chrome/156.0.0.0 Safari/537.36 Edg/156.0.0.0", "Edge"),
        (f"{_WEBKIT} Chrome/156.0.0.0 Safari/537.36 OPR/130.0.0.0", "Opera"),
        (f"{_WEBKIT} Version/26.0 Safari/605.1.15", "Safari"),
        (f"{_WEBKIT} CriOS/156.0 Mobile/15E148 Safari/604.1", "Chrome"),
        ("Mozilla/5.0 (X11; Linux x86_64; rv:150.0) Gecko/20100101 Firefox/150.0", "Firefox"),
        ("curl/8.0", "other"),
        ("<b>a name</b>", "other"),
        ("", "other"),
    ],
)
def test_a_browser_is_one_word_of_a_closed_list(user_agent, word):
    assert browser_named(user_agent) == word
    assert word in BROWSERS
