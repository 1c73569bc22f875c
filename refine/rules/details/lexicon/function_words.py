"""Words that every text has: they do not show that two texts speak of the same thing."""

from refine.rules.details.folding import fold

_WORDS = """
a an the this that these those i you he she it we they me him her us them my your his its our
their mine yours hers ours theirs am is are was were be been being have has had having do does did
will would can could may might shall should must to of in on at by for with from about as into
onto over under after before between through during without within and or but nor so if then than
because while when where who whom whose which what how why there here not no yes very too also
just only such each every some any all both more most much many other another again up down out
off own same der die das den dem des ein eine einen einem einer eines ich du er sie es wir ihr
mich mir dich dir ihn ihm uns euch sich mein dein sein ihre seine seiner unser bin bist ist sind
war waren wird werden wurde haben hat hatte kann und oder aber nicht kein keine auch nur noch
schon sehr so wie als wenn weil dass in im an am auf aus bei beim mit nach von vom vor zu zum zur
um über unter für durch gegen le la les un une des du de au aux je tu il elle on nous vous ils
elles me te se ce cet cette ces mon ma mes ton ta tes son sa ses notre votre leur est sont était
être a ont avait avoir et ou mais ne pas que qui dont où dans sur sous avec sans pour par en y
plus très el los las unos unas lo al del yo él ella ellos nosotros su sus mi mis tu tus es son era
ser está están ha han había y o pero no que quien en con sin por para como más muy ya se le il lo
gli i uno di da del della dei nel nella al alla con su per tra fra e ed o ma non che chi è sono
era essere ha hanno io lui lei noi voi loro mio mia suo sua si ci ne più molto o os as um uma do
da dos das no na nos nas ao à com sem por para em eu ele ela eles meu minha seu sua é são foi ser
está tem e ou mas não que se het een van op te voor met aan uit bij ik jij hij zij wij hun zijn
haar mijn was heeft en of maar niet ook dat die dit det den en ett och att som på av för med till
från jag du han hon vi de är var har inte men om i w z na do od po za o u się jest są był była
było być ma nie tak to ta ten te tego tej jego jej ich mój moja ja ty on ona ono my wy oni a ale
lub że co kto jak dla przez przy ze we и в на с со к ко у о об от до по за из не ни но а или что
кто как это этот эта я ты он она оно мы вы они его ее их мне ему ей был была было были быть есть
для при же бы і й у в на з із до від по за не але або що хто як це я ти він вона ми ви вони його
її був була є для v s z k na do od po za o u se je jsou byl byla být ma nie to ten ta já on ona my
že co jak pro při a ο η το οι τα του της των τον την τους τις ένας μια ένα και ή αλλά δεν να θα σε
στο στη στην στον από με για που ότι είναι ήταν έχει μου σου του αυτός αυτή αυτό εγώ ve veya ama
bir bu şu o ben sen biz siz onlar de da ile için gibi çok ne mi mı değil ja tai mutta on ei oli
hän minä sinä se että kun niin myös في من إلى على عن مع هذا هذه هو هي أنا أن لا ما كان كانت و أو
ثم قد של את על אל עם לא הוא היא אני זה זו יש אין גם כי אם או היה היתה है हैं था थी थे का की के को
में से पर और या नहीं यह वह मैं ने भी एक 我们 他们 这个 那个 一个 から です ます した して いる
ある こと 는다 한다 이다 있다
"""

FUNCTION_WORDS = frozenset(fold(word) for word in _WORDS.split())
