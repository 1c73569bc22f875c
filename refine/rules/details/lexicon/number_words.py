"""Numbers that are written as words, in the languages that we know."""

from collections.abc import Iterator, Mapping

from refine.rules.details.folding import fold

# 0 to 19 (or 20) in order; then tens from 20 to 90.
_UNITS = {
    "en": """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
        fifteen sixteen seventeen eighteen nineteen""",
    "de": """null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn
        fünfzehn sechzehn siebzehn achtzehn neunzehn""",
    "fr": """zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze
        seize dix_sept dix_huit dix_neuf""",
    "es": """
        cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince
        dieciséis diecisiete dieciocho diecinueve""",
    "it": """zero uno due tre quattro cinque sei sette otto nove dieci undici dodici tredici
        quattordici quindici sedici diciassette diciotto diciannove""",
    "pt": """zero um dois três quatro cinco seis sete oito nove dez onze doze treze catorze quinze
        dezesseis dezessete dezoito dezenove""",
    "nl": """nul een twee drie vier vijf zes zeven acht negen tien elf twaalf dertien veertien
        vijftien zestien zeventien achttien negentien""",
    "sv": """noll ett två tre fyra fem sex sju åtta nio tio elva tolv tretton fjorton femton sexton
        sjutton arton nitton""",
    "pl": """zero jeden dwa trzy cztery pięć sześć siedem osiem dziewięć dziesięć jedenaście
        dwanaście trzynaście czternaście piętnaście szesnaście siedemnaście osiemnaście
        dziewiętnaście""",
    "ru": """ноль один два три четыре пять шесть семь восемь девять десять одиннадцать двенадцать
        тринадцать четырнадцать пятнадцать шестнадцать семнадцать восемнадцать девятнадцать""",
    "uk": """нуль один два три чотири п’ять шість сім вісім дев’ять десять одинадцять дванадцять
        тринадцять чотирнадцять п’ятнадцять шістнадцять сімнадцять вісімнадцять дев’ятнадцять""",
    "el": """μηδέν ένα δύο τρία τέσσερα πέντε έξι επτά οκτώ εννέα δέκα έντεκα δώδεκα δεκατρία
        δεκατέσσερα δεκαπέντε δεκαέξι δεκαεπτά δεκαοκτώ δεκαεννέα""",
    "tr": "sıfır bir iki üç dört beş altı yedi sekiz dokuz on",
    "fi": """nolla yksi kaksi kolme neljä viisi kuusi seitsemän kahdeksan yhdeksän kymmenen
        yksitoista kaksitoista kolmetoista neljätoista viisitoista kuusitoista seitsemäntoista
        kahdeksantoista yhdeksäntoista""",
    "ar": """صفر واحد اثنان ثلاثة أربعة خمسة ستة سبعة ثمانية تسعة عشرة أحد_عشر اثنا_عشر ثلاثة_عشر
        أربعة_عشر خمسة_عشر ستة_عشر سبعة_عشر ثمانية_عشر تسعة_عشر""",
    "he": """אפס אחת שתיים שלוש ארבע חמש שש שבע שמונה תשע עשר אחת_עשרה שתים_עשרה שלוש_עשרה
        ארבע_עשרה חמש_עשרה שש_עשרה שבע_עשרה שמונה_עשרה תשע_עשרה""",
    "hi": """शून्य एक दो तीन चार पाँच छह सात आठ नौ दस ग्यारह बारह तेरह चौदह पंद्रह सोलह सत्रह अठारह
        उन्नीस बीस इक्कीस बाईस तेईस चौबीस पच्चीस छब्बीस सत्ताईस अट्ठाईस उनतीस तीस""",
    "ko": "영 하나 둘 셋 넷 다섯 여섯 일곱 여덟 아홉 열",
}
_TENS = {
    "en": "twenty thirty forty fifty sixty seventy eighty ninety",
    "de": "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
    "fr": "vingt trente quarante cinquante soixante septante quatre_vingt nonante",
    "es": "veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa",
    "it": "venti trenta quaranta cinquanta sessanta settanta ottanta novanta",
    "pt": "vinte trinta quarenta cinquenta sessenta setenta oitenta noventa",
    "nl": "twintig dertig veertig vijftig zestig zeventig tachtig negentig",
    "sv": "tjugo trettio fyrtio femtio sextio sjuttio åttio nittio",
    "pl": """dwadzieścia trzydzieści czterdzieści pięćdziesiąt sześćdziesiąt siedemdziesiąt
        osiemdziesiąt dziewięćdziesiąt""",
    "ru": "двадцать тридцать сорок пятьдесят шестьдесят семьдесят восемьдесят девяносто",
    "uk": "двадцять тридцять сорок п’ятдесят шістдесят сімдесят вісімдесят дев’яносто",
    "el": "είκοσι τριάντα σαράντα πενήντα εξήντα εβδομήντα ογδόντα ενενήντα",
    "tr": "yirmi otuz kırk elli altmış yetmiş seksen doksan",
    "fi": """kaksikymmentä kolmekymmentä neljäkymmentä viisikymmentä kuusikymmentä
        seitsemänkymmentä kahdeksankymmentä yhdeksänkymmentä""",
    "ar": "عشرون ثلاثون أربعون خمسون ستون سبعون ثمانون تسعون",
    "he": "עשרים שלושים ארבעים חמישים שישים שבעים שמונים תשעים",
    "hi": "बीस तीस चालीस पचास साठ सत्तर अस्सी नब्बे",
    "ko": "스물 서른 마흔 쉰 예순 일흔 여든 아흔",
}
# Other forms of the same numbers: inflected, older, joined.
_FORMS = """
zwo=2 fuenf=5 zwoelf=12 dreissig=30 quatre_vingts=80 huitante=80 octante=80 vingt_et_un=21
veintiuno=21 veintiún=21 veintidós=22 veintitrés=23 veinticuatro=24 veinticinco=25 veintiséis=26
veintisiete=27 veintiocho=28 veintinueve=29 dezasseis=16 dezassete=17 dezanove=19 duas=2 quatorze=14
dwie=2 dwóch=2 dwaj=2 dwoje=2 trzech=3 troje=3 czterech=4 pięciu=5 sześciu=6 siedmiu=7 ośmiu=8
dziewięciu=9 dziesięciu=10 dwunastu=12 siedemnastu=17 dwudziestu=20 две=2 двух=2 двум=2 двое=2
трех=3 трем=3 трое=3 четырех=4 четверо=4 пяти=5 пятеро=5 шести=6 семи=7 восьми=8 девяти=9 десяти=10
двенадцати=12 семнадцати=17 двадцати=20 тридцати=30 сорока=40 дві=2 двох=2 трьох=3 чотирьох=4
δυο=2 τρεις=3 τριών=3 τέσσερις=4 εφτά=7 οχτώ=8 εννιά=9 δεκαεφτά=17 δεκαοχτώ=18
اثنين=2 اثنتان=2 اثنتين=2 ثلاث=3 أربع=4 خمس=5 ست=6 سبع=7 ثماني=8 ثمان=8 تسع=9 عشر=10 سبع_عشرة=17
عشرين=20 ثلاثين=30 أربعين=40 خمسين=50 ستين=60 سبعين=70 ثمانين=80 تسعين=90 שניים=2 שני=2 שתי=2
שלושה=3 שלושת=3 ארבעה=4 חמישה=5 שישה=6 שבעה=7 תשעה=9 עשרה=10 שבעה_עשר=17 שנים_עשר=12 पांच=5 छः=6 छे=6
두=2 세=3 네=4 스무=20
"""
_ORDINALS = """
third=3 fourth=4 fifth=5 sixth=6 seventh=7 eighth=8 ninth=9 tenth=10 eleventh=11 twelfth=12
thirteenth=13 fourteenth=14 fifteenth=15 sixteenth=16 seventeenth=17 eighteenth=18 nineteenth=19
twentieth=20 thirtieth=30 fortieth=40 fiftieth=50
"""
_MULTIPLIERS = {
    100: """hundred hundert honderd hundra cent cento ciento cem cien sto сто yüz sata εκατό מאה مئة
        مائة सौ""",
    1_000: """thousand tausend duizend tusen mille mil tysiąc tysiące tysięcy тысяча тысячи тысяч
        тисяча bin tuhat χίλια χιλιάδες אלף אלפים ألف آلاف हज़ार""",
    1_000_000: """million millions millionen mio millón millones milione milioni milhão milhões
        miljoen miljon milion miliony milionów миллион миллиона миллионов milyon miljoona
        εκατομμύριο εκατομμύρια מיליון مليون ملايين""",
    100_000: "lakh lakhs लाख",
    1_000_000_000_000: "trillion trillions tn",
    1_000_000_000: "billion billions bn milliarde milliarden mrd milliard миллиард milyar",
}
# Also ordinary words elsewhere: numbers only in texts of these languages, or in none.
_AMBIGUOUS = {
    "none": "once first second twice dozen null nul zero bir eins jeden",
    "de": "elf null",
    "es": "once mil",
    "fr": "cent seize sept onze",
    "it": "due sei tre cento otto nove",
    "nl": "een elf onze",
    "pt": "cem mil nove",
    "sv": "tre sex fem",
    "tr": "bin on elli",
    "pl": "sto",
    "cs": "sto",
    "fi": "sata",
    "he": "דו",
    "ko": "열 영 세 네 둘 두",
}
_EXTRA = """
twice=2 first=1 second=2 dozen=12 ein=1 eine=1 einen=1 einer=1 une=1 una=1 un=1 jedna=1
одна=1 одно=1 once=11
"""


def _pairs(text: str) -> Iterator[tuple[str, int]]:
    for pair in text.split():
        phrase, _, value = pair.partition("=")
        yield phrase, int(value)


def _german_compounds() -> Iterator[tuple[str, int]]:
    units = ["", "ein", *_UNITS["de"].split()[2:10]]
    for ten, word in enumerate(_TENS["de"].split(), 2):
        for unit in range(1, 10):
            yield f"{units[unit]}und{word}", 10 * ten + unit


def _phrases() -> Iterator[tuple[str, int]]:
    for words in _UNITS.values():
        yield from ((word, value) for value, word in enumerate(words.split()))
    for words in _TENS.values():
        yield from ((word, 10 * ten) for ten, word in enumerate(words.split(), 2))
    yield from _german_compounds()
    for text in (_FORMS, _ORDINALS, _EXTRA):
        yield from _pairs(text)


def _folded(phrase: str) -> str:
    return " ".join(fold(word) for word in phrase.replace("’", "").split("_"))


# Phrase of folded words, joined by spaces -> its value.
VALUES: Mapping[str, int] = {_folded(phrase): value for phrase, value in _phrases()}
MULTIPLIERS: Mapping[str, int] = {
    fold(word): value for value, words in _MULTIPLIERS.items() for word in words.split()
}
# Folded word -> the languages in which it is a number, if it is ordinary in others.
AMBIGUOUS: dict[str, set[str]] = {}
for _language, _words in _AMBIGUOUS.items():
    for _word in _words.split():
        AMBIGUOUS.setdefault(fold(_word), set()).add(_language)
