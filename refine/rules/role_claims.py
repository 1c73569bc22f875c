"""The roles that a provider of identities gives somebody, by a claim of its token."""

import re

# As a group or role of the provider is called: refine:admin@acme.
_ROLE = re.compile(r"refine:(admin|viewer)@([a-z0-9]+(?:-[a-z0-9]+)*)")


def roles_claimed(claim: object) -> dict[str, str]:
    """Return the role in each account, by its slug; where both are given, admin."""
    texts = claim.split() if isinstance(claim, str) else claim if isinstance(claim, list) else []
    found = [match for text in texts if (match := _ROLE.fullmatch(str(text)))]
    viewers_first = sorted(((match[2], match[1]) for match in found), reverse=True)
    return dict(viewers_first)
