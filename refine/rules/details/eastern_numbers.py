"""Numbers, dates and weekdays in Chinese, Japanese and Korean characters."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from refine.rules.details.dates import Moment, eastern_time, moment
from refine.rules.details.lexicon.date_words import EASTERN_WEEKDAYS

_NUMERALS = dict(
    zip("〇零一二三四五六七八九两兩", (0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 2), strict=True)
)
_POWERS = {"十": 10, "百": 100, "千": 1_000}
_GREAT_POWERS = {"万": 10_000, "萬": 10_000, "億": 100_000_000, "亿": 100_000_000}
_MAX_NUMERALS = 16
_NUMERAL = "〇零一二三四五六七八九两兩十百千万萬億亿"
# Behind a numeral: what it counts.
_COUNTED = (
    "个個岁歳才年月日号號点點時时分秒天周週次人位名只隻匹头頭本册冊枚台杯碗元円圆塊块公里米斤度层階歩步回"
    "件条條张張章页頁代世届男女口道份双對对種种つ冬春夏秋多週晚夜半部篇首辆輛把棵朵颗粒瓶盒袋箱套间家所座"
)
_NUMBER = re.compile(rf"([{_NUMERAL}]+)([{_COUNTED}]?)")
# Words that hold a numeral and count nothing.
_NOT_COUNTED = re.compile(
    "十分|千万|万一|八卦|三明治|四川|百货|百貨|九州|四国|三重|千葉|十字|百合|万能|千里|一(?![十百千万億亿二三四五六七八九])"
)
_DATE = re.compile(
    rf"(?:([〇零一二三四五六七八九]{{4}})年|(?<![{_NUMERAL}]))(十[一二]?|[一二三四五六七八九])月"
    "(?:([一二三四五六七八九十]{1,3})[日号號]?)?"
)
_KOREAN_COUNT = re.compile(
    "(?<![가-힣])((?:열|스물|서른|마흔|쉰|예순|일흔|여든|아흔)?(?:하나|한|두|둘|세|셋|네|넷|다섯|여섯|일곱|여덟|아홉)?|스무)"
    " ?(?:살|명|개|번|마리|시|권|장|잔|병|달|대|채)"
)
_KOREAN_TENS = dict(
    zip(
        ["열", "스물", "서른", "마흔", "쉰", "예순", "일흔", "여든", "아흔"],
        range(10, 100, 10),
        strict=True,
    )
)
_KOREAN_UNITS = {
    "하나": 1, "한": 1, "두": 2, "둘": 2, "세": 3, "셋": 3, "네": 4, "넷": 4, "다섯": 5, "여섯": 6,
    "일곱": 7, "여덟": 8, "아홉": 9,
}  # fmt: skip
_TIME = re.compile(
    f"(?<![{_NUMERAL}])(十[一二]?|二十[一二三四]?|[一二三四五六七八九])([点點時时]半?)"
)


class Counted(NamedTuple):
    """A number of a run: as it is written, its value, and whether it counts something."""

    written: str
    value: int
    is_detail: bool


def dates_of(run: str) -> Iterator[tuple[str, Moment]]:
    """Yield the dates that a run has in Han numerals, 三月五日: as written, and what they mean."""
    for found in _DATE.finditer(run):
        year, month, day = (numeral_value(part) if part else 0 for part in found.groups())
        yield found.group(), moment(str(year or ""), month, day)


def times_of(run: str) -> Iterator[tuple[str, Moment]]:
    """Yield the times that a run has in Han numerals, 三点半: as written, and what they mean."""
    for found in _TIME.finditer(run):
        written = f"{numeral_value(found[1])}{found[2]}"
        yield found.group(), eastern_time(written, run[: found.start()])


def numerals_of(run: str) -> Iterator[Counted]:
    """Yield the numbers that a run has in Han numerals, outside of dates and times."""
    for found in _NUMBER.finditer(_TIME.sub("", _DATE.sub("", run))):
        written, counted = found.groups()
        if len(written) <= _MAX_NUMERALS:
            counts = bool(counted) or len(written) > 1
            is_detail = counts and _NOT_COUNTED.match(found.group()) is None
            yield Counted(written, numeral_value(written), is_detail)


def numeral_value(written: str) -> int:
    """Return the value of Han numerals: 17 for 十七, 2026 for 二〇二六, 30000 for 三万."""
    if all(each in _NUMERALS for each in written):
        return int("".join(str(_NUMERALS[each]) for each in written))
    total, section, digit = 0, 0, 0
    for each in written:
        if each in _NUMERALS:
            digit = _NUMERALS[each]
        elif each in _POWERS:
            section, digit = section + (digit or 1) * _POWERS[each], 0
        else:
            total, section, digit = (total + section + digit or 1) * _GREAT_POWERS[each], 0, 0
    return total + section + digit


def great_power(run: str) -> int | None:
    """Return what a run multiplies the digits before it by: 10000 for 万."""
    return _GREAT_POWERS.get(run[:1])


def weekdays_of(run: str) -> Iterator[tuple[str, int]]:
    """Yield the weekdays of a run: as written, and 1 (Monday) to 7."""
    for written, number in EASTERN_WEEKDAYS.items():
        if written in run:
            yield written, number


def korean_numbers_of(text: str) -> Iterator[Counted]:
    """Yield the native Korean numbers of a text that count something."""
    for found in _KOREAN_COUNT.finditer(text):
        if value := _korean_value(found[1]):
            yield Counted(found[1], value, value > 1)


def _korean_value(written: str) -> int:
    if written == "스무":
        return 20
    for ten, value in _KOREAN_TENS.items():
        if written.startswith(ten):
            return value + _KOREAN_UNITS.get(written[len(ten) :], 0)
    return _KOREAN_UNITS.get(written, 0)
