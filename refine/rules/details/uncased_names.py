"""Names in scripts that have spaces but no capitals: Arabic, Hebrew, Devanagari.

A title or a word such as "named" or "city" marks the word beside it; common given names and places
are listed. Other names of these scripts are not seen.
"""

from collections.abc import Sequence

from refine.rules.details.folding import fold

# The next word is a name.
_TITLES = """
مدينة قرية شارع دولة العاصمة העיר רחוב הכפר המושב הקיבוץ
السيد السيدة الدكتور الدكتورة دكتور دكتورة الأستاذ الأستاذة أستاذ الشيخ الشيخة
الأمير الأميرة المهندس المهندسة الحاج الحاجة اسمه اسمها اسمي واسمه واسمها
يدعى تدعى أبو أم العم الخالة آقای خانم دکتر מר גב
גברת דר פרופ הרב שמו שמה שמי בשם דוד הדודה श्री
श्रीमती डॉ डॉक्टर कुमारी सुश्री प्रोफेसर नाम पंडित
"""
# The word before is a name.
_ENDINGS = "जी साहब साहिब भाई दीदी"
_NAMES = """
محمد أحمد علي حسن حسين خالد يوسف إبراهيم مصطفى محمود عبدالله فاطمة مريم عائشة زينب ليلى سارة نور
هدى منى سلمى ياسمين رانيا كريم سامي طارق وليد ماجد رامي زياد هند دينا خديجة أمينة سعيد ناصر فيصل
سلمان عمرو آدم لينا هبة ندى رنا سمير نادية عادل هاني رضا مهدی زهرا القاهرة دبي الرياض بيروت دمشق
بغداد مصر لبنان سوريا المغرب تونس الأردن السعودية باريس لندن برلين تهران משה דוד יוסף יעקב אברהם
יצחק שרה רחל רבקה לאה דנה יעל נועה מיכל תמר אסתר רות חנה מרים דניאל יונתן איתן עמית אורי איתי
עידו רון אבי יוסי שלמה שמעון אליהו בנימין עומר נועם איתמר הדס שירה טליה מאיה אביגיל אלון ניר
ירושלים אביב חיפה ישראל אילת פריז לונדון ברלין राम मोहन राहुल अनिल सुनील अमित राज विजय संजय अजय
रोहन अर्जुन करण प्रिया अनीता सुनीता पूजा नेहा सीता गीता रीना मीना कविता अंजलि दीपा राधा लक्ष्मी
सोनिया काजल आरती रवि सुरेश महेश रमेश दिनेश गणेश विकास आदित्य दिल्ली मुंबई भारत कोलकाता चेन्नई
जयपुर वाराणसी पुणे बेंगलुरु लंदन पेरिस
"""
# Written as parts of the next word: and, so, with, like, to, the, from, in, that.
_JOINED = {
    "arabic": ("", "و", "ف", "ب", "ل", "ك", "ال", "وال", "بال", "لل", "ول", "وب", "فل"),
    "hebrew": (
        *("", "ו", "ה", "ב", "ל", "מ", "ש", "כ"),
        *("וה", "וב", "ול", "שה", "של", "מה", "ומ", "וש"),
    ),
}
_FIRST_LETTERS = {"arabic": ("\u0600", "\u06ff"), "hebrew": ("\u05d0", "\u05ea")}

_TITLE_WORDS = frozenset(map(fold, _TITLES.split()))
_ENDING_WORDS = frozenset(map(fold, _ENDINGS.split()))
_KNOWN = frozenset(map(fold, _NAMES.split()))


def uncased_name(words: Sequence[str], at: int) -> str | None:
    """Return the name that the folded word at ``at`` gives, without what is joined to it."""
    word = words[at]
    if word in _TITLE_WORDS or word in _ENDING_WORDS:
        return None
    for joined in _joined_to(word):
        if word.startswith(joined) and word[len(joined) :] in _KNOWN:
            return word[len(joined) :]
    marked = (at > 0 and words[at - 1] in _TITLE_WORDS) or (
        at + 1 < len(words) and words[at + 1] in _ENDING_WORDS
    )
    return word if marked and len(word) > 1 else None


def is_joined_form_of(name: str, word: str) -> bool:
    """Tell whether one of two words is the other with a preposition or article joined to it."""
    longer, shorter = (word, name) if len(word) > len(name) else (name, word)
    return longer.endswith(shorter) and longer[: -len(shorter)] in _joined_to(longer)


def _joined_to(word: str) -> Sequence[str]:
    for script, (first, last) in _FIRST_LETTERS.items():
        if first <= word[0] <= last:
            return _JOINED[script]
    return ("",)
