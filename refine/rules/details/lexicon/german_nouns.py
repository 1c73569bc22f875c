"""German nouns that say little: their capital letter makes no name of them."""

from refine.rules.details.folding import fold

_NOUNS = """
Jahr Jahre Jahren Jahres Tag Tage Tagen Tages Woche Wochen Monat Monate Monaten Stunde Stunden
Minute Minuten Sekunde Sekunden Uhr Zeit Zeiten Abend Abende Abends Morgen Vormittag Mittag
Nachmittag Nacht Nächte Mal Male Moment Momente Augenblick Anfang Ende Mitte Art Weise Teil Teile
Ding Dinge Sache Sachen Grund Gründe Fall Fälle Leute Mensch Menschen Mann Männer Frau Frauen Kind
Kinder Kindern Person Personen Name Namen Alter Stelle Ort Orte Platz Seite Seiten Stück Euro Cent
Prozent Grad Kilo Kilogramm Gramm Meter Metern Kilometer Liter Thema Themen Gespräch Gespräche
Treffen Termin Termine Nachricht Nachrichten Frage Fragen Antwort Antworten Wort Worte Worten Satz
Sätze Adresse Nummer Notiz Erinnerung Erinnerungen Information Informationen Problem Probleme
Wunsch Wünsche Plan Pläne Ziel Ziele Idee Ideen Meinung Gefühl Gefühle Gedanke Gedanken Vorliebe
Vorlieben Gewohnheit Besuch Besitz Leben Arbeit Beruf Wohnort Geburtstag Gruppe Anzahl Menge Reihe
Anlass Beispiel Gegensatz Regel Bezug Hilfe Nähe Lage Sinn Spaß Lust Angst Freude Liebling
Interesse Interessen Nutzer Nutzerin Benutzer Assistent
"""

GERMAN_NOUNS = frozenset(fold(noun) for noun in _NOUNS.split())
