"""Groups of texts that are alike by their rarest words (TF-IDF), or by pairs of characters where
words have no spaces; and which of the groups rest, because sessions left them alone.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, combinations, pairwise, product
from math import comb, log, sqrt
from typing import NamedTuple

from refine.rules.content import UNSPACED_SCRIPTS
from refine.rules.retention import MAX_MERGED

MIN_LIKENESS = 0.25

_READ_CHARACTERS = 1_000
# The ends of words, which grammar changes, do not matter.
_READ_LETTERS = 5
# So many are looked at, first those that share the rarest term: more would take long.
_MOST_PAIRS = 200_000
_WORD = re.compile(rf"([{UNSPACED_SCRIPTS}]+)|[^\W_{UNSPACED_SCRIPTS}]+")

# By the ids of two texts, the smaller first: from MIN_LIKENESS to 1.
Likeness = Mapping[tuple[int, int], float]


class Group(NamedTuple):
    """Texts that are alike; ``likeness``: in percent, of two of them on average."""

    ids: tuple[int, ...]
    likeness: int


def groups_alike(texts: Mapping[int, str], locked: Collection[int] = ()) -> list[Group]:
    """Return groups that one merge could take, the most alike first, none all ``locked``."""
    likeness = _likeness({id_: _terms(texts[id_]) for id_ in sorted(texts)})
    found = [Group(tuple(sorted(ids)), _percent(ids, likeness)) for ids in _joined(likeness)]
    groups = (group for group in found if not set(locked).issuperset(group.ids))
    return sorted(groups, key=lambda group: (-group.likeness, group.ids))


def without_resting(
    groups: Iterable[Group], earlier: Sequence[Collection[Collection[int]]]
) -> list[Group]:
    """Leave out what sessions were shown and left alone, for 1, 2, 4, … sessions; ``earlier``: the
    ids of the groups that each was shown, the newest session first.
    """

    def is_resting(group: Group) -> bool:
        shown = [
            sessions_since
            for sessions_since, groups in enumerate(earlier)
            if any(set(group.ids).issubset(ids) for ids in groups)
        ]
        return bool(shown) and shown[0] < 2 ** (len(shown) - 1)

    return [group for group in groups if not is_resting(group)]


def _terms(text: str) -> set[str]:
    terms = set[str]()
    plain = unicodedata.normalize("NFKC", text[:_READ_CHARACTERS]).casefold()
    for found in _WORD.finditer(plain):
        word = found[0]
        if found[1] is None or len(word) == 1:
            terms.add(word[:_READ_LETTERS])
        else:
            terms.update(map("".join, pairwise(word)))
    return terms


def _likeness(terms: Mapping[int, set[str]]) -> Likeness:
    """Return the cosine of texts whose terms weigh more the fewer texts have them."""
    counts = Counter(chain.from_iterable(terms.values()))
    weights = {count: log((len(terms) + 1) / count) ** 2 for count in set(counts.values())}
    lengths = {id_: sqrt(sum(weights[counts[term]] for term in terms[id_])) for id_ in terms}
    holders: dict[str, list[int]] = {term: [] for term, count in counts.items() if count > 1}
    for id_, each in terms.items():
        for term in holders.keys() & each:
            holders[term].append(id_)
    shared: dict[tuple[int, int], float] = defaultdict(float)
    left = _MOST_PAIRS
    for ids in sorted(holders.values(), key=len):
        left -= comb(len(ids), 2)
        if left < 0:
            break
        for pair in combinations(ids, 2):
            shared[pair] += weights[len(ids)]
    cosines = ((pair, each / lengths[pair[0]] / lengths[pair[1]]) for pair, each in shared.items())
    return {pair: cosine for pair, cosine in cosines if cosine >= MIN_LIKENESS}


def _joined(likeness: Likeness) -> list[set[int]]:
    """Join texts, the most alike first, as long as they are alike on average."""
    groups: dict[int, set[int]] = {}
    for pair in sorted(likeness, key=lambda pair: (-likeness[pair], pair)):
        one, other = (groups.get(id_, {id_}) for id_ in pair)
        if one is other or len(one) + len(other) > MAX_MERGED:
            continue
        if _mean(product(one, other), likeness) >= MIN_LIKENESS:
            groups |= dict.fromkeys(both := one | other, both)
    return list({min(group): group for group in groups.values()}.values())


def _percent(ids: Collection[int], likeness: Likeness) -> int:
    return round(100 * _mean(combinations(ids, 2), likeness))


def _mean(pairs: Iterable[tuple[int, int]], likeness: Likeness) -> float:
    found = [likeness.get((min(pair), max(pair)), 0) for pair in pairs]
    return sum(found) / len(found)
