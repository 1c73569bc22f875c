"""Names of months and weekdays, in the languages that we know."""

from collections.abc import Mapping

from refine.rules.details.folding import fold

# One paragraph a month. Inflected forms, and the abbreviations that stand beside a number, too.
_MONTHS = """
january jan januar jänner janvier enero gennaio janeiro januari styczeń stycznia styczniu январь
января январе січень січня ιανουάριος ιανουαρίου ιανουάριο ocak يناير كانون_الثاني ינואר जनवरी
tammikuu tammikuuta tammikuussa leden ledna gen sty янв

february feb februar février febrero febbraio fevereiro februari luty lutego lutym февраль
февраля феврале лютий лютого φεβρουάριος φεβρουαρίου φεβρουάριο şubat فبراير شباط פברואר फरवरी
helmikuu helmikuuta helmikuussa únor února

march mar märz mars marzo março maart marzec marca marcu март марта марте березень березня
μάρτιος μαρτίου μάρτιο mart مارس آذار מרץ मार्च maaliskuu maaliskuuta maaliskuussa březen března
maerz

april apr avril abril aprile kwiecień kwietnia kwietniu апрель апреля апреле квітень квітня
απρίλιος απριλίου απρίλιο nisan أبريل إبريل نيسان אפריל अप्रैल huhtikuu huhtikuuta huhtikuussa
duben dubna avr

may mai mayo maggio maio mei maj maja maju май мая мае травень травня μάιος μαΐου μάιο mayıs
مايو أيار מאי मई toukokuu toukokuuta toukokuussa květen května

june jun juni juin junio giugno junho czerwiec czerwca czerwcu июнь июня июне червень червня
ιούνιος ιουνίου ιούνιο haziran يونيو حزيران יוני जून kesäkuu kesäkuuta kesäkuussa červen června

july jul juli juillet julio luglio julho lipiec lipca lipcu июль июля июле липень липня ιούλιος
ιουλίου ιούλιο temmuz يوليو تموز יולי जुलाई heinäkuu heinäkuuta heinäkuussa červenec července

august aug août agosto augustus augusti sierpień sierpnia sierpniu август августа августе
серпень серпня αύγουστος αυγούστου αύγουστο ağustos أغسطس آب אוגוסט अगस्त elokuu elokuuta
elokuussa srpen srpna

september sep sept septembre septiembre settembre setembro wrzesień września wrześniu сентябрь
сентября сентябре вересень вересня σεπτέμβριος σεπτεμβρίου σεπτέμβριο eylül سبتمبر أيلول ספטמבר
सितंबर सितम्बर syyskuu syyskuuta syyskuussa září

october oct oktober octobre octubre ottobre outubro październik października październiku
октябрь октября октябре жовтень жовтня οκτώβριος οκτωβρίου οκτώβριο ekim أكتوبر אוקטובר अक्टूबर
lokakuu lokakuuta lokakuussa říjen října okt

november nov novembre noviembre novembro listopad listopada listopadzie ноябрь ноября ноябре
νοέμβριος νοεμβρίου νοέμβριο kasım نوفمبر נובמבר नवंबर नवम्बर marraskuu marraskuuta marraskuussa

december dec dezember décembre diciembre dicembre dezembro grudzień grudnia grudniu декабрь
декабря декабре грудень грудня δεκέμβριος δεκεμβρίου δεκέμβριο aralık ديسمبر דצמבר दिसंबर
दिसम्बर joulukuu joulukuuta joulukuussa prosinec prosince dez déc
"""
# Abbreviations, and words that mean other things or name people: months beside a number only.
_AMBIGUOUS_MONTHS = """
jan feb mar apr avr jun jul aug sep sept oct okt nov dec dez déc gen sty янв may march mars
marca

mart maja mei maj mai мая nisan آب mayo ocak ekim luty lutego září
"""
_WEEKDAYS = """
monday mondays montag lundi lunes lunedì segunda maandag måndag poniedziałek poniedziałku
poniedziałki понедельник понедельника понедельникам понеділок δευτέρα pazartesi الاثنين الإثنين
सोमवार maanantai maanantaina 星期一 周一 週一 礼拜一 禮拜一 月曜 월요일 montags

tuesday tuesdays tue tues dienstag mardi martes martedì terça dinsdag tisdag wtorek wtorku
wtorki вторник вторника вторникам вівторок τρίτη salı الثلاثاء मंगलवार tiistai tiistaina 星期二
周二 週二 礼拜二 禮拜二 火曜 화요일 dienstags

wednesday wednesdays mittwoch mercredi miércoles mercoledì quarta woensdag onsdag środa środę
środy среда среду среды средам середа τετάρτη çarşamba الأربعاء बुधवार keskiviikko keskiviikkona
星期三 周三 週三 礼拜三 禮拜三 水曜 수요일 mittwochs

thursday thursdays thu thur thurs donnerstag jeudi jueves giovedì quinta donderdag torsdag
czwartek czwartku czwartki четверг четверга четвергам четвер πέμπτη perşembe الخميس गुरुवार
torstai torstaina 星期四 周四 木曜 목요일 donnerstags

friday fridays fri freitag vendredi viernes venerdì sexta vrijdag fredag piątek piątku piątki
пятница пятницу пятницы пятницам п’ятниця παρασκευή cuma الجمعة शुक्रवार perjantai perjantaina
星期五 周五 週五 礼拜五 禮拜五 金曜 금요일 freitags

saturday saturdays samstag sonnabend samedi sábado sabato zaterdag lördag sobota sobotę soboty
суббота субботу субботы субботам субота σάββατο cumartesi السبت शनिवार lauantai lauantaina
星期六 周六 土曜 토요일 samstags

sunday sundays sonntag dimanche domingo domenica zondag söndag niedziela niedzielę niedziele
воскресенье воскресенья воскресеньям неділя κυριακή pazar الأحد रविवार sunnuntai sunnuntaina
星期日 星期天 周日 日曜 일요일 sonntags
"""
_ORDINAL_ENDINGS = "st nd rd th er re e ère ème eme o a º ª го е й te de ste"
_LINKS = "of de del do da di den der the le el il of ב"


def _numbered(lines: str) -> Mapping[str, int]:
    return {
        fold(word.replace("’", "")): number
        for number, line in enumerate(lines.strip().split("\n\n"), 1)
        for word in line.split()
        if "_" not in word
    }


# Folded word -> 1 to 12, Monday = 1 to Sunday = 7.
MONTHS = _numbered(_MONTHS)
WEEKDAYS = _numbered(_WEEKDAYS)
# Folded word -> hour.
HOURS = {
    fold(word): hour
    for hour, words in {
        12: "noon midday mediodía mezzogiorno полдень полудня",
        0: "midnight mitternacht minuit medianoche mezzanotte полночь полуночи",
    }.items()
    for word in words.split()
}
AMBIGUOUS_MONTHS = frozenset(fold(word) for word in _AMBIGUOUS_MONTHS.split())
# Ordinal endings that stand right behind digits; words between a day, a month and a year.
ORDINAL_ENDINGS = frozenset(fold(word) for word in _ORDINAL_ENDINGS.split())
LINKS = frozenset(fold(word) for word in _LINKS.split())
# They stand within runs of characters.
EASTERN_WEEKDAYS: Mapping[str, int] = {
    word: number for word, number in WEEKDAYS.items() if word[0] >= "\u3040"
}
