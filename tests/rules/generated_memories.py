"""Memories in several languages, made of phrases, and near-copies of some; the same each time."""

from dataclasses import dataclass
from random import Random

from rapidfuzz import fuzz

# Who, does what, where, when, and an afterthought; in this order, unless a sentence is shuffled.
PHRASES = {
    "en": (
        "Mira|Tomasz|Olumide|the captain|my neighbour|Delphine|Henrike|the night nurse|Solveig",
        "told me that the heron comes back every spring|repaired the kitchen clock with a hairpin|"
        "keeps three jars of blackberry jam under the stairs|counts the geese above the lake|"
        "wants to learn the cello before the winter|prefers tea without sugar since the fever|"
        "writes letters to a lighthouse keeper|was offered a job at the observatory|"
        "reads the same novel each November|sold the bicycle and bought a loom|"
        "never talks about the accident on the bridge|planted a pear tree for the twins",
        "in Lyon|near the harbour|behind the old mill|at the railway station|in the attic room|"
        "on the way to the clinic|beside the frozen river|at her sister's wedding",
        "after the long strike|on a grey Tuesday|before anybody woke up|while the radio played|"
        "for the second time this year|just as the snow began|during the power cut",
        "and it made both of us laugh|which nobody else knows|and I promised to remember it|"
        "so we talked until morning|because the doctor insisted|and I still have the photograph",
    ),
    "de": (
        "Anneliese|der Förster|meine Tante|Jürgen|die Ärztin|Frau Özdemir|der Lokführer",
        "sammelt seit Jahren verrostete Schlüssel|hat den Zug nach Görlitz verpasst|"
        "backt am liebsten Brot mit Kümmel|will im Herbst ein Boot bauen|"
        "fürchtet sich vor tiefem Wasser|spielt jeden Abend Schach gegen sich selbst|"
        "vermisst den Garten ihrer Großmutter|zeichnet Karten von Orten, die es nicht gibt",
        "in der Werkstatt|hinter dem Bahnhof|auf der Insel|im Wartezimmer|am Rand des Moores",
        "seit dem großen Regen|am Abend vor der Abreise|jeden zweiten Sonntag|nach der Operation",
        "und hat dabei gelacht|was niemand wissen soll|obwohl es verboten war|"
        "weil das Geld nicht reichte|und seitdem ist alles leichter",
    ),
    "ru": (
        "Анна|мой сосед|учительница|Дмитрий|старый капитан|бабушка Нина",
        "мечтает увидеть северное сияние|чинит старые радиоприёмники|варит варенье из крыжовника|"
        "не любит говорить о войне|знает наизусть всего Пушкина|боится летать на самолёте|"
        "находит письма в старом шкафу|каждый год уезжает к морю",
        "в Казани|на даче|у самой реки|в пустой квартире|на вокзале",
        "прошлой зимой|после долгой болезни|в день рождения сына|когда выключили свет",
        "и просит никому не рассказывать|и мы долго смеялись|потому что так спокойнее|"
        "хотя врач был против|и я запомнила каждое слово",
    ),
    "zh": (
        "小明|我的奶奶|王医生|隔壁的老师|李雷|船长",
        "每天早上都去湖边数大雁，|用一根发夹修好了厨房里的旧钟，|想在冬天之前学会拉大提琴，|"
        "从来不提桥上发生的那场事故，|把自行车卖掉买了一台织布机，|给双胞胎种下了一棵梨树，|"
        "在楼梯下面藏了三罐黑莓果酱，|喜欢喝不加糖的绿茶，",
        "在里昂，|在老磨坊后面，|在火车站，|在没有名字的村子里，|在医院的走廊上，",
        "下雪的时候，|停电的那天晚上，|考试结束以后，|选举当天，|罢工之后，",
        "我们俩都笑了。|这件事没有别人知道。|我答应会记住。|因为医生坚持这样做。|照片我还留着。",
    ),
    "ja": (
        "田中さん|祖母|隣の先生|美咲さん|船長|山本先生",
        "は毎朝湖のほとりで雁を数えている、|はヘアピンで台所の古い時計を直した、|"
        "は冬が来る前にチェロを習いたがっている、|は橋の上の事故のことを決して話さない、|"
        "は自転車を売って織り機を買った、|は双子のために梨の木を植えた、|"
        "は階段の下にジャムを隠している、|は砂糖なしの緑茶が好きだ、",
        "リヨンで、|古い水車小屋の裏で、|駅のホームで、|名前のない村で、|病院の廊下で、",
        "雪が降り始めたころ、|停電の夜、|試験が終わったあと、|選挙の日に、|ストライキのあと、",
        "二人とも笑った。|ほかの誰も知らない。|覚えていると約束した。|医者がそう言った。",
    ),
    "th": (
        "คุณสมชาย|คุณยาย|ครูมาลี|กัปตัน|หมอนิดา",
        "ไปนับห่านที่ริมทะเลสาบทุกเช้า|ซ่อมนาฬิกาเก่าในครัวด้วยกิ๊บติดผม|อยากเรียนเชลโลก่อนฤดูหนาว|"
        "ไม่เคยพูดถึงอุบัติเหตุบนสะพาน|ขายจักรยานแล้วซื้อเครื่องทอผ้า|ปลูกต้นแพร์ให้ลูกแฝด|"
        "ซ่อนแยมไว้ใต้บันไดสามขวด|ชอบดื่มชาเขียวไม่ใส่น้ำตาล",
        "ที่เชียงใหม่|หลังโรงสีเก่า|ที่สถานีรถไฟ|ในหมู่บ้านที่ไม่มีชื่อ|ในโรงพยาบาล",
        "ตอนที่หิมะเริ่มตก|ในคืนที่ไฟดับ|หลังสอบเสร็จ|ในวันเลือกตั้ง|หลังการนัดหยุดงาน",
        "เราสองคนหัวเราะกัน|ไม่มีใครรู้เรื่องนี้|ฉันสัญญาว่าจะจำไว้|รูปถ่ายยังอยู่กับฉัน",
    ),
}
SYNONYMS = {
    "en": "somehow",
    "de": "irgendwie",
    "ru": "однажды",
    "zh": "某个",
    "ja": "とある",
    "th": "บาง",
}
UNSPACED = ("zh", "ja", "th")


@dataclass(frozen=True)
class Generated:
    """Texts by id, and the near-copies among them: of two ids, with the kind of the change."""

    texts: dict[int, str]
    near_copies: dict[tuple[int, int], str]


def generated(
    size: int, *, seed: int = 1, languages: tuple[str, ...] = tuple(PHRASES)
) -> Generated:
    """So many memories, of which every eighth has a near-copy with a rapidfuzz ratio >= 80."""
    random = Random(seed)
    texts: dict[int, str] = {}
    near_copies: dict[tuple[int, int], str] = {}
    while len(texts) < size:
        language = random.choice(languages)
        phrases = _phrases(language, random)
        text = _joined(language, phrases)
        texts[len(texts)] = text
        if len(texts) % 8 == 0:
            kind = random.choice(tuple(CHANGES))
            changed = CHANGES[kind](language, phrases, random)
            if changed != text and fuzz.ratio(text, changed) >= 80:
                near_copies[len(texts) - 1, len(texts)] = kind
                texts[len(texts)] = changed
    return Generated(texts, near_copies)


def _phrases(language: str, random: Random) -> list[str]:
    who, what, where, when, after = (part.split("|") for part in PHRASES[language])
    first, second = random.sample(what, 2)
    parts = [random.choice(who), first, random.choice(where), random.choice(when)]
    return [*parts, random.choice(who), second, random.choice(after)][: random.choice((4, 6, 7))]


def _joined(language: str, phrases: list[str]) -> str:
    return ("" if language in UNSPACED else " ").join(phrases)


def _reordered(language: str, phrases: list[str], random: Random) -> str:
    at = random.randrange(len(phrases) - 1)
    one, other = phrases[at : at + 2]
    return _joined(language, [*phrases[:at], other, one, *phrases[at + 2 :]])


def _longer(language: str, phrases: list[str], random: Random) -> str:
    return _joined(language, [*phrases, random.choice(PHRASES[language][4].split("|"))])


def _synonymous(language: str, phrases: list[str], random: Random) -> str:
    text = _joined(language, phrases)
    if language in UNSPACED:
        at = random.randrange(len(text) - 2)
        return text[:at] + SYNONYMS[language] + text[at + 2 :]
    words = text.split()
    words[random.randrange(len(words))] = SYNONYMS[language]
    return " ".join(words)


def _punctuated(language: str, phrases: list[str], random: Random) -> str:
    text = _joined(language, phrases)
    at = random.randrange(len(text))
    return f"{text[:at]}… {text[at:]}!".replace(" ", ", ", 1)


CHANGES = {
    "word order": _reordered,
    "a clause more": _longer,
    "a synonym": _synonymous,
    "punctuation": _punctuated,
}
