"""Names in scripts without spaces: Chinese, Japanese, Korean, Thai.

Titles, words in katakana, common surnames and well-known places mark names; so does a Chinese
surname at the head of a clause, with one or two characters behind it. Other names are not seen.
"""

import re
from collections.abc import Iterator

_HAN = "\u3400-\u4dbf\u4e00-\u9fff々"
_MAX_SURNAME = 3
_KATAKANA = re.compile("[ァ-ヺー]{2,}")
_KANA = re.compile("[ぁ-ゖァ-ヺ]")
_JAPANESE_NAME = re.compile(
    rf"([{_HAN}]{{1,12}}|(?<![ぁ-ゖ])[ぁ-ゖ]{{2,3}})"
    "(?:さん|様|ちゃん|くん|君|先生|殿|教授|部長|課長|社長|先輩|氏)"
)
_JAPANESE_INTRODUCED = re.compile(
    rf"(?:名前は|名は|(?:[妹弟姉兄娘妻夫母父犬猫]|息子|友達|友人|同僚|彼女|彼氏|上司)の)"
    rf"([ぁ-ゖ]{{2,4}}?|[{_HAN}]{{1,4}}?)(?=[はがともをにの、。]|です|だ|と)"
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
    rf"(?:(?<![{_HAN}\d])|(?<=[和与跟同叫是给对问见]))([{_SURNAMES}][{_HAN}]{{1,2}}?|[小阿老][{_HAN}])"
    "(?=喜欢|喜歡|住|在|是|有|的|说|說|今年|对|對|和|与|跟|会|會|想|爱|愛|每|去|来|不|讨厌|用|从|養|养|送|给|要"
    "|也|刚|曾|最|出生|工作|告|答|把|教|买|買|吃|喝"
    rf"|(?![{_HAN}]))"
)
_CHINESE_INTRODUCED = re.compile(rf"(?:叫做?|名字是|姓名[:是])([{_HAN}]{{2,3}})(?![{_HAN}])")
_NO_PART_OF_NAMES = re.compile("[和与跟同的是到见]")
_NO_NAMES = re.compile(
    "高兴|马上|黄色|白色|白天|方便|方法|周末|周[一二三四五六日天]|安全|金色|石头|江边|小时|老是|小心|老家|小[猫狗孩学]"
)
_PLACES = re.compile(
    "北京|上海|广州|廣州|深圳|成都|重庆|杭州|南京|武汉|西安|苏州|天津|香港|台北|台湾|澳门|中国|中國|日本|韩国|美国|英国|法国|德国"
    "|渋谷|新宿|池袋|品川|上野|浅草|銀座|東京|东京|大阪|京都|名古屋|札幌|福岡|横浜|神戸|沖縄|広島|仙台|北海道|奈良|韓国|首尔|巴黎|伦敦|纽约"
    "|서울|부산|대구|인천|광주|대전|제주|한국|일본|중국|미국|도쿄|กรุงเทพ|เชียงใหม่|ภูเก็ต"
)
_KOREAN_NAMES = (
    re.compile("(?<![가-힣])([가-힣]{2,4}) ?(?:씨|님|선생님|교수님|박사님|대리님|과장님|팀장님)"),
    re.compile(
        "(?<![가-힣])([김이박최정강조윤장임한오서신권황안송홍유문손배백허남심노]"
        "[가-힣]{2})(?:은|는|이|가|을|를|와|과|의|에게|한테|랑)(?![가-힣])"
    ),
)
_KOREAN_INTRODUCED = re.compile(
    "이름[은이] ?([가-힣]{2,5}?)(?=입니다|이다|이에요|예요|이고|이며|(?![가-힣]))"
)
_THAI_NAME = re.compile(
    "(?:คุณ|นาย|นาง(?:สาว)?|พี่|น้อง|ครู|หมอ|ชื่อ)([ก-๙]{2,4})|(สมชาย|สมหญิง|สมศรี|มานี|มานะ)"
)
# Family members and others who are not called by name.
_NO_JAPANESE_NAMES = re.compile("たく|みな|皆|[お]?[父母兄姉客子]|赤|娘|奥|医者|旦那")


def eastern_names(text: str) -> Iterator[str]:
    """Yield the names that are marked in a text: people, places, words in katakana."""
    yield from _KATAKANA.findall(text)
    yield from _PLACES.findall(text)
    yield from _japanese_names(text) if _KANA.search(text) else _chinese_names(text)
    for pattern in (*_KOREAN_NAMES, _KOREAN_INTRODUCED, _THAI_NAME):
        yield from (found[1] or found.group() for found in pattern.finditer(text))


def stands_in(name: str, row: str) -> bool:
    """Tell whether a name stands in a row of words; one in katakana only as a whole word."""
    if _KATAKANA.fullmatch(name):
        return name in _KATAKANA.findall(row)
    return name in row.replace(" ", "")


def _japanese_names(text: str) -> Iterator[str]:
    yield from _KNOWN_JAPANESE_NAME.findall(text)
    yield from _JAPANESE_INTRODUCED.findall(text)
    for found in _JAPANESE_NAME.finditer(text):
        name = found[1] if len(found[1]) <= _MAX_SURNAME else found[1][-2:]
        if not _NO_JAPANESE_NAMES.fullmatch(name):
            yield name if len(name) > 1 else found.group()


def _chinese_names(text: str) -> Iterator[str]:
    yield from _CHINESE_INTRODUCED.findall(text)
    for found in _CHINESE_TITLED.finditer(text):
        before, title = _NO_PART_OF_NAMES.split(found[1])[-1], found[2]
        surname = next((at for at, each in enumerate(before) if each in _SURNAMES), 0)
        name = before[surname:]
        yield name if len(name) > 1 else name + title
    for found in _CHINESE_NAME.finditer(text):
        if not _NO_NAMES.match(found[1]):
            yield found[1]
