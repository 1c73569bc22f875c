"""Details in scripts without spaces or capitals: Chinese, Japanese, Korean, Thai.

Titles, numerals with what they count, weekdays, words in katakana and well-known places mark
details; so does a Chinese surname at the head of a clause, with one or two characters behind it.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from refine.rules.details.date_words import EASTERN_WEEKDAYS
from refine.rules.details.tokens import UNSPACED

_UNSPACED = re.compile(f"[{UNSPACED}]")

_HAN = "\u3400-\u4dbf\u4e00-\u9fff々"
_NUMERALS = dict(
    zip("〇零一二三四五六七八九两兩", (0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 2), strict=True)
)
_POWERS = {"十": 10, "百": 100, "千": 1_000}
_GREAT_POWERS = {"万": 10_000, "萬": 10_000, "億": 100_000_000, "亿": 100_000_000}
_MAX_NUMERALS = 16
_MAX_SURNAME = 3
_NUMERAL = "〇零一二三四五六七八九两兩十百千万萬億亿"
# Behind a numeral: what it counts.
_COUNTED = (
    "个個岁歳才年月日号號点點時时分秒天周週次人位名只隻匹头頭本册冊枚台杯碗元円圆塊块公里米斤度层階歩步回"
    "件条條张張章页頁代世届男女口道份双對对種种つ冬春夏秋多週晚夜半部篇首辆輛把棵朵颗粒瓶盒袋箱套间家所座"
)
_NUMBER = re.compile(rf"([{_NUMERAL}]+)(?=([{_COUNTED}]?))")
# Words that hold a numeral and count nothing.
_NOT_COUNTED = re.compile("十分|千万|万一|一[^年月日]|八卦|三明治|四川|百货|一")
_KATAKANA = re.compile("[ァ-ヺー]{2,}")
_KANA = re.compile("[ぁ-ゖァ-ヺ]")
_JAPANESE_NAME = re.compile(
    rf"([{_HAN}]{{1,12}}|(?<![ぁ-ゖ])[ぁ-ゖ]{{2,3}})"
    "(?:さん|様|ちゃん|くん|君|先生|殿|教授|部長|課長|社長|先輩|氏)"
)
_KNOWN_JAPANESE_NAME = re.compile(
    "佐藤|鈴木|高橋|田中|渡辺|伊藤|山本|中村|小林|加藤|吉田|山田|佐々木|山口|松本|井上|木村|清水|斎藤|斉藤|山崎|森田"
    "|池田|橋本|阿部|石川|山下|中島|石井|小川|前田|岡田|長谷川|藤田|後藤|近藤|村上|遠藤|青木|坂本|福田|太田|西村|藤井"
    "|太郎|花子|健太|美咲|翔太|陽子|由美|裕子|恵子|直樹|健一"
)
_SURNAMES = (
    "王李张張刘劉陈陳杨楊黄赵趙吴吳周徐孙孫马馬朱胡郭何林高罗羅郑鄭梁谢謝宋唐许許韩韓冯馮邓鄧曹彭曾萧蕭田"
    "董袁潘蒋蔣蔡余杜叶葉程苏蘇魏吕呂丁任沈姚卢盧姜崔钟鍾谭譚陆陸汪范金石廖贾賈夏韦韋傅方白邹鄒孟熊秦邱江"
    "尹薛闫阎雷侯龙龍史陶黎贺賀顾顧毛郝龚龔邵万萬钱錢严嚴武戴莫孔向汤湯"
)
_CHINESE_TITLES = "先生|女士|小姐|太太|老师|老師|医生|醫生|教授|经理|經理|阿姨|叔叔|总|師傅|师傅"
_CHINESE_TITLED = re.compile(rf"([{_HAN}]{{1,3}}?)({_CHINESE_TITLES})")
_CHINESE_NAME = re.compile(
    rf"(?:(?<![{_HAN}\\d])|(?<=[和与跟同叫是给对问见]))([{_SURNAMES}][{_HAN}]{{1,2}}?|[小阿老][{_HAN}])"
    "(?=喜欢|喜歡|住|在|是|有|的|说|說|今年|对|對|和|与|跟|会|會|想|爱|愛|每|去|来|不|讨厌|用|从|養|养|送|给|要"
    "|也|刚|曾|最|出生|工作|告|答|把|教|买|買|吃|喝"
    rf"|(?![{_HAN}]))"
)
_NO_PART_OF_NAMES = re.compile("[和与跟同的是到见]")
_NO_NAMES = re.compile(
    "高兴|马上|黄色|白色|白天|方便|方法|周末|周[一二三四五六日天]|安全|金色|石头|江边|小时|老是|小心|老家|小[猫狗孩学]"
)
_PLACES = re.compile(
    "北京|上海|广州|廣州|深圳|成都|重庆|杭州|南京|武汉|西安|苏州|天津|香港|台北|台湾|澳门|中国|中國|日本|韩国|美国|英国|法国|德国"
    "|東京|东京|大阪|京都|名古屋|札幌|福岡|横浜|神戸|沖縄|広島|仙台|北海道|奈良|韓国|首尔|巴黎|伦敦|纽约"
    "|서울|부산|대구|인천|광주|대전|제주|한국|일본|중국|미국|도쿄|กรุงเทพ|เชียงใหม่|ภูเก็ต"
)
_KOREAN_NAMES = (
    re.compile("(?<![가-힣])([가-힣]{2,4}) ?(?:씨|님|선생님|교수님|박사님|대리님|과장님|팀장님)"),
    re.compile(
        "(?<![가-힣])([김이박최정강조윤장임한오서신권황안송홍유문손배백허남심노]"
        "[가-힣]{2})(?:은|는|이|가|을|를|와|과|의|에게|한테|랑)(?![가-힣])"
    ),
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
_THAI_NAME = re.compile(
    "(?:คุณ|นาย|นาง(?:สาว)?|พี่|น้อง|ครู|หมอ)([ก-๙]{2,4})|(สมชาย|สมหญิง|สมศรี|มานี|มานะ)"
)


def pairs(run: str) -> set[str]:
    """Return the pairs of adjacent characters of a run; the run itself if it is one character."""
    return {first + second for first, second in pairwise(run)} or set(run)


def numerals(run: str) -> Iterator[tuple[str, int, bool]]:
    """Yield the numbers of a run: as written, their value, and whether they are details."""
    for found in _NUMBER.finditer(run):
        written, counted = found.groups()
        if len(written) <= _MAX_NUMERALS:
            is_detail = written != "一" and (
                (bool(counted) and not _NOT_COUNTED.match(run, found.start(), found.end() + 1))
                or (len(written) > 1 and not _NOT_COUNTED.match(written))
            )
            yield written, numeral_value(written), is_detail


def korean_numbers(text: str) -> Iterator[tuple[str, int]]:
    """Yield the native Korean numbers that count something: as written, and their value."""
    for found in _KOREAN_COUNT.finditer(text):
        if value := _korean_value(found[1]):
            yield found[1], value


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


def weekdays(run: str) -> Iterator[tuple[str, int]]:
    """Yield the weekdays of a run: as written, and 1 (Monday) to 7."""
    for written, number in EASTERN_WEEKDAYS.items():
        if written in run:
            yield written, number


def marked(text: str) -> Iterator[str]:
    """Yield what a text names: people by title or surname, places, words in katakana."""
    yield from _KATAKANA.findall(text)
    yield from _PLACES.findall(text)
    yield from _japanese_names(text) if _KANA.search(text) else _chinese_names(text)
    for pattern in (*_KOREAN_NAMES, _THAI_NAME):
        yield from (found[1] or found.group() for found in pattern.finditer(text))


def _japanese_names(text: str) -> Iterator[str]:
    yield from _KNOWN_JAPANESE_NAME.findall(text)
    for found in _JAPANESE_NAME.finditer(text):
        name = found[1] if len(found[1]) <= _MAX_SURNAME else found[1][-2:]
        yield name if len(name) > 1 else found.group()


def _chinese_names(text: str) -> Iterator[str]:
    for found in _CHINESE_TITLED.finditer(text):
        before, title = _NO_PART_OF_NAMES.split(found[1])[-1], found[2]
        surname = next((at for at, each in enumerate(before) if each in _SURNAMES), 0)
        name = before[surname:]
        yield name if len(name) > 1 else name + title
    for found in _CHINESE_NAME.finditer(text):
        if not _NO_NAMES.match(found[1]):
            yield found[1]


def _korean_value(written: str) -> int:
    if written == "스무":
        return 20
    for ten, value in _KOREAN_TENS.items():
        if written.startswith(ten):
            return value + _KOREAN_UNITS.get(written[len(ten) :], 0)
    return _KOREAN_UNITS.get(written, 0)


def is_unspaced(character: str) -> bool:
    """Tell whether a character belongs to a script without spaces."""
    return _UNSPACED.match(character) is not None


def stands_in(written: str, row: str) -> bool:
    """Tell whether what was marked stands in a row of characters; katakana as a whole word."""
    if _KATAKANA.fullmatch(written):
        return written in _KATAKANA.findall(row)
    return written in row
