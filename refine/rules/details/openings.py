"""Ordinary words with which memories begin, beyond lists of stop words."""

from refine.rules.details.folding import fold

_WORDS = """
accepted adores admires admitted adopted afraid aims allergic apparently appreciates asked asks ate attends
avoids baked bakes became began believes best better birthday both bought brought built bought calls came
cares carries celebrates changed chose collects comes completed confirmed considers cooks cried
currently dances dear decided describes described despises did dislikes does dreams drinks drives drove each earns
eats enjoyed enjoys explained favorite favourite fears feels felt finds finished first follows
formerly forgot found free gave gets given gives goes good got grateful great grew had happy hated hates
hears helped helps her his hopes hopefully ideally important intends interested invited joined just keeps kept
knows last lately later laughed learned learning leaves left likes listens lived lives living looks lost
loved loves made makes maybe means meets memory mentioned met might misses moved moves must named
never new note notes noticed often once only originally our owns painted parents passed pays people plans
played plays preference preferred preferably prefers previously promised promises proud put quit rarely reads
realized recently regularly remember remembered reminder remembers requested runs said sad saw says sees
sells sensitive sent shared she showed sings sleeps smokes someone sometimes soon speaks spent spends spoke
started starts stays still stopped studied studies studying suffers summary supports swims takes talked teaches tells
thinks thought today together told tomorrow tonight took travels tried tries trusts turned two tends
under understands used uses usually vegan vegetarian visited visits volunteers waiting walked walks wanted wants was
watched watches wears weekly went whenever wishes worked working works worried worries writes wrote yearly
yesterday young user users assistant human agent feels summer winter spring autumn morning evening night
mother father mom mum dad sister brother wife husband son daughter friend friends family colleague
boss neighbor neighbour team project work dinner lunch breakfast coffee tea music books book food
email phone address website please thanks thank yes hello hi okay ok sorry goodbye always every
vow vows quote meeting call trip date dates today's fact facts update context goal goals
mag liebt lebt wohnt arbeitet möchte will hasst bevorzugt spielt lernt studiert heißt kommt geht fährt
trinkt isst gestern heute morgen immer gern gerne jeden jede jedes nutzer nutzerin benutzer erinnerung
mein meine seine ihre unser unsere am im beim vom zum zur seit letzte letzten letztes letzter leider
aime adore déteste habite travaille préfère veut joue vit boit mange parle étudie hier aujourd demain
toujours souvent chaque l'utilisateur utilisateur utilisatrice mon ma mes son sa ses notre nos
gusta gustan encanta encantan vive trabaja prefiere quiere odia juega estudia bebe come habla ayer hoy
mañana siempre nunca cada usuario usuaria mi mis su sus nuestro nuestra
piace piacciono ama vive lavora preferisce vuole odia gioca studia ieri oggi domani sempre ogni utente
gosta adora mora trabalha prefere quer odeia joga estuda ontem hoje amanhã sempre usuário
houdt woont werkt wil haat speelt gisteren vandaag morgen altijd elke gebruiker
gillar älskar bor arbetar jobbar vill hatar spelar igår idag imorgon alltid varje
lubi kocha mieszka pracuje woli chce nienawidzi gra uczy studiuje pije je mówi wczoraj dziś dzisiaj
jutro zawsze nigdy każdy każdą każdego użytkownik użytkowniczka mój moja moje jego jej nasz nasza
любит живет работает предпочитает хочет ненавидит играет учит учится пьет ест говорит вчера сегодня
завтра всегда никогда каждый каждую каждое пользователь пользовательница мой моя мое моего мою наш
наша наши ему ей мама папа муж жена сын дочь брат сестра друг подруга
любить живе працює хоче вчора сьогодні завтра завжди мій моя його її
miluje bydlí pracuje chce včera dnes zítra vždy můj moje jeho její uživatel
αγαπά αγαπάει μένει ζει δουλεύει εργάζεται προτιμά θέλει μισεί παίζει σπουδάζει χθες χτες σήμερα αύριο
πάντα ποτέ κάθε χρήστης αρέσει αρέσουν έχει είναι πήγε είπε
sever seviyor yaşıyor oturuyor çalışıyor istiyor nefret oynuyor okuyor dün bugün yarın her kullanıcı
benim onun annem babam kardeşim
pitää rakastaa asuu haluaa vihaa pelaa eilen tänään huomenna aina käyttäjä minun hänen
"""

OPENINGS = frozenset(fold(word) for word in _WORDS.split())
