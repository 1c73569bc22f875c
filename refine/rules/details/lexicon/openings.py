"""Ordinary words with which memories begin, beyond lists of stop words."""

from refine.rules.details.folding import fold

_WORDS = """
accepted adores admires admitted adopted afraid aims allergic apparently appreciates asked asks
ate attends avoids baked bakes became began believes best better birthday both bought brought
built calls came cares carries celebrates changed chose collects comes completed confirmed
considers cooks cried currently dances dear decided describes described despises did dislikes does
dreams drinks drives drove each earns eats enjoyed enjoys explained favorite favourite fears feels
felt finds finished first follows formerly forgot found free gave gets given gives goes good got
grateful great grew had happy hated hates hears helped helps her his hopes hopefully ideally
important intends interested invited joined just keeps kept knows last lately later laughed
learned learning leaves left likes listens lived lives living looks lost loved loves made makes
maybe means meets memory mentioned met might misses moved moves must named never new note notes
noticed often once only originally our owns painted parents passed pays people plans played plays
preference preferred preferably prefers previously promised promises proud put quit rarely reads
realized recently regularly remember remembered reminder remembers requested runs said sad saw
says sees sells sensitive sent shared she showed sings sleeps smokes someone sometimes soon speaks
spent spends spoke started starts stays still stopped studied studies studying suffers summary
supports swims takes talked teaches tells thinks thought today together told tomorrow tonight took
travels tried tries trusts turned two tends under understands used uses usually vegan vegetarian
visited visits volunteers waiting walked walks wanted wants was watched watches wears weekly went
whenever wishes worked working works worried worries writes wrote yearly yesterday young user
users assistant human agent summer winter spring autumn morning evening night mother father mom
mum dad sister brother wife husband son daughter friend friends family colleague boss neighbor
neighbour team project work dinner lunch breakfast coffee tea music books book food email phone
address website please thanks thank yes hello hi okay ok sorry goodbye always every vow vows quote
meeting call trip date dates today's fact facts update context goal goals mag liebt lebt wohnt
arbeitet möchte will hasst bevorzugt spielt lernt studiert heißt kommt geht fährt trinkt isst
gestern heute morgen immer gern gerne jeden jede jedes nutzer nutzerin benutzer erinnerung mein
meine seine ihre unser unsere am im beim vom zum zur seit letzte letzten letztes letzter leider
aime adore déteste habite travaille préfère veut joue vit boit mange parle étudie hier aujourd
demain toujours souvent chaque l'utilisateur utilisateur utilisatrice mon ma mes sa ses notre nos
gusta gustan encanta encantan vive trabaja prefiere quiere odia juega estudia bebe come habla ayer
hoy mañana siempre nunca cada usuario usuaria mi mis su sus nuestro nuestra piace piacciono ama
lavora preferisce vuole gioca studia ieri oggi domani sempre ogni utente gosta adora mora trabalha
prefere quer odeia joga estuda ontem hoje amanhã usuário houdt woont werkt wil haat speelt
gisteren vandaag altijd elke gebruiker gillar älskar bor arbetar jobbar vill hatar spelar igår
idag imorgon alltid varje lubi kocha mieszka pracuje woli chce nienawidzi gra uczy studiuje pije
je mówi wczoraj dziś dzisiaj jutro zawsze nigdy każdy każdą każdego użytkownik użytkowniczka mój
moja moje jego jej nasz nasza любит живет работает предпочитает хочет ненавидит играет учит учится
пьет ест говорит вчера сегодня завтра всегда никогда каждый каждую каждое пользователь
пользовательница мой моя мое моего мою наш наша наши ему ей мама папа муж жена сын дочь брат
сестра друг подруга любить живе працює хоче вчора сьогодні завжди мій його її miluje bydlí včera
dnes zítra vždy můj jeho její uživatel αγαπά αγαπάει μένει ζει δουλεύει εργάζεται προτιμά θέλει
μισεί παίζει σπουδάζει χθες χτες σήμερα αύριο πάντα ποτέ κάθε χρήστης αρέσει αρέσουν έχει είναι
πήγε είπε sever seviyor yaşıyor oturuyor çalışıyor istiyor nefret oynuyor okuyor dün bugün yarın
kullanıcı benim onun annem babam kardeşim pitää rakastaa asuu haluaa vihaa pelaa eilen tänään
huomenna aina käyttäjä minun hänen accept add admire agree answer ask bake bring build buy carry
celebrate change check choose clean close collect compare complete consider contact continue cook
create cry cut dance decide deliver discuss do draw dream drink drive eat enjoy explain fear feel
find finish fix follow forget gather get give go grow have hear help hold hug invite join keep
kiss know laugh learn leave let like listen live look lose love make meet mention miss move need
open order pack paint pay pick plant play practice practise prefer prepare promise protect reach
read receive refer relax remind rent repair reply respect rest return ride run save say schedule
see sell send set share show sign sing sit sleep smile speak spend stand start stay stop study
swim take talk teach tell text think touch train travel treat try turn understand use visit wait
wake walk want wash watch wear welcome win wish write account advice age animals apartment
appointment bank bath beach bed bedroom bees bike bills blood boat body bread brother's budget bus
cake camera car card cat cats chat child childhood children chocolate christmas city class clothes
code company computer conversation country cream cup day days deadline death desk diet docs doctor
document documents dog dogs door dress education emails end event everyone exercise eyes face
father's feelings feet film fish flight flowers flour fruit game games garden gate gift glasses
guest guests hair half hand hands heart height high hobby hobbies holiday holidays hospital house
husband's ice idea ideas interest interests interview job journey joy keys kids kitchen language
languages late laughter letter letters library life light list man married meat medicine men
message messages milk mind moment moments money month months mood mother's movies name names
nature neighbor's nickname nights noise number office pain painting paintings paper parent partner
party passport password past people's pet pets photo photos piano place plan plants poem poems
present problem profession question questions rain reading reason recipe red relationship report
result rice room rooms route rule rules running salary school sea season secret shoes shop silence
singing skin snow son's song songs soup sport sports station stories story street stress student
students style subject sugar sun sunday's surprise swimming table tasks teacher teeth test tests
things ticket tickets time times title town toys training tree trees trips truth video voice
walking wall war water way wedding week weekend weekends weeks weight wife's wind window wine
winter's woman women wood words writing year alone angry anxious bad beautiful big black blue
bored born broken busy calm careful cold cool dark deep different difficult early easy empty
enough excited expensive fast few fine fresh full funny gentle green hard healthy heavy honest hot
huge hungry ill jealous kind large lonely low lucky main many most nervous nice old other own
perfect poor possible private public quick quiet quietly ready real recent rich right safe scared
serious several shy sick simple slow small soft special strange strong sudden suddenly sure sweet
tall thin tired tiny top true ugly unable unhappy unusual warm weak white wild wise wrong usual
initially eventually additionally furthermore meanwhile moreover nevertheless therefore thus
generally especially particularly specifically occasionally frequently normally typically mostly
mainly possibly clearly certainly obviously unfortunately sadly luckily fortunately overall nobody
everybody everything nothing instead otherwise besides despite although though whereas during
among across along according nowadays somehow somewhere anywhere everywhere twice thrice
bevorzugte bekam kaufte ging hatte fand traf sagte erzählte meinte bald manchmal oft selten nie
weil wegen trotz außerdem allerdings dort zuerst zuletzt später früher zuhause zu née né allé
allée depuis pendant parfois jamais demande prend fait peut cherche nació fue tuvo dijo cree
piensa cuando mientras después antes aunque también además según prefiero ha detto cerca pensa
dopo prima quando mentre anche inoltre secondo nasceu foi disse acha depois também enquanto
urodził urodziła był była było powiedział powiedziała czasem często rzadko potem teraz kiedy
ponieważ dzięki niech szuka pracowała pracował kupił kupiła родился родилась был была было сказал
сказала иногда часто редко потом теперь когда потому зато однако купил купила нужно надо хочется
думает считает мечтает боится учила учил раньше позже сейчас γεννήθηκε ήταν όταν μετά πριν συχνά
σπάνια μερικές τώρα ίσως doğdu dedi söyledi bazen sık sonra önce şimdi belki çünkü ancak fakat
kendisi hafta akşam sabah syntyi sanoi joskus usein harvoin nyt sitten kun koska föddes sade
ibland ofta sällan nu sedan när eftersom owner manager member lover fan player singer writer
driver runner speaker worker leader nurse engineer developer designer artist lawyer scientist
programmer baker chef collector founder volunteer resident native graduate survivor veteran widow
widower single divorced engaged pregnant retired unemployed introvert extrovert introverted
painter gardener dancer hiker reader swimmer cyclist musician mechanic plumber atheist believer
christian muslim jewish catholic buddhist diabetic lactose allergy allergies fond passionate
curious skeptical optimistic pessimistic shares sharing insists insisted suggested suggests
struggles struggled mentions noted feared dreamed dreamt smells smelled nearly wakes woke learnt
raised graduated served survived witnessed earned owed owes lent borrowed sold stole broke fell
hurt burned burnt cooked cleaned drew sang danced ran jumped climbed hiked biked skied flew sailed
rescued fed trained cared nursed buried mourned grieved prayed hoped dated kissed hugged held
forgave apologized apologised argued fought reconciled agreed disagreed refused declined rejected
resigned hired fired promoted inherited won missed skipped cancelled canceled postponed delayed
rescheduled booked reserved signed sealed renewed expired ends begins opens closes arrives departs
lasts costs contains includes requires allows equals remains becomes seems appears sounds tastes
пишет читает спит рисует готовит поет танцует путешествует ходит едет ездит бегает ищет ждет верит
помнит знает умеет может гордится скучает жалеет плачет смеется просит просил просила помог
помогла хотел хотела нашел нашла начал начала решил решила узнал узнала переехал переехала
познакомился познакомилась приехал приехала вышла женился потерял потеряла получил получила обещал
обещала боялся боялась pisze czyta śpi boi rysuje gotuje śpiewa tańczy podróżuje chodzi czeka
wierzy pamięta zna umie może tęskni płacze prosi poprosił poprosiła pomógł chciał chciała znalazł
znalazła zaczął zaczęła przeprowadził poznał poznała dostał dostała obiecał obiecała stracił
straciła schreibt liest schläft fürchtet zeichnet kocht singt tanzt reist sucht wartet glaubt weiß
kennt kann vermisst weint bat wollte begann zog lernte verlor versprach hofft braucht sammelt
fühlt freut träumt écrit lit craint dessine cuisine chante danse voyage attend croit sait connaît
pleure rêve souhaite espère collectionne possède porte vient va a déménagé rencontré escribe lee
duerme teme dibuja cocina canta baila viaja busca espera sabe conoce puede llora sueña necesita
tiene compró conoció perdió prometió colecciona quería empezó scrive legge dorme disegna cucina
balla viaggia aspetta crede conosce piange sogna spera escreve lê desenha cozinha dança procura
acredita conhece chora sonha tem γράφει διαβάζει κοιμάται φοβάται ζωγραφίζει μαγειρεύει τραγουδά
χορεύει ταξιδεύει ψάχνει περιμένει πιστεύει ξέρει μπορεί κλαίει ονειρεύεται ελπίζει χρειάζεται
μαθαίνει yazıyor uyuyor korkuyor çiziyor pişiriyor arıyor bekliyor inanıyor biliyor ağlıyor umuyor
öğreniyor çocuğu kızı oğlu eşi annesi babası kedisi köpeği встретил встретила позвонил позвонила
написал написала подарил подарила прочитал прочитала посмотрел посмотрела работал работала жил
жила любил любила говорил говорила рассказал рассказала обсудили говорили спросил спросила ответил
ответила вспомнил вспомнила забыл забыла уехал уехала вернулся вернулась помогает звонит
встречается занимается увлекается интересуется чувствует носит держит ведет растет болеет
переживает spotkał spotkała zadzwonił zadzwoniła napisał napisała przeczytał opowiedział
opowiedziała zapytał zapytała zapomniał zapomniała wyjechał wrócił wróciła pomaga dzwoni spotyka
zajmuje interesuje czuje nosi trzyma
"""

OPENINGS = frozenset(fold(part) for word in _WORDS.split() for part in word.split("'")[:1])
