"""Roles by a claim of the provider of identities."""

import pytest

from refine.rules.role_claims import roles_claimed


@pytest.mark.parametrize(
    ("claim", "roles"),
    [
        ("refine:admin@acme", {"acme": "admin"}),
        (["refine:viewer@acme-2", "staff"], {"acme-2": "viewer"}),
        ("refine:viewer@acme refine:admin@other", {"acme": "viewer", "other": "admin"}),
        (["refine:admin@acme", "refine:viewer@acme"], {"acme": "admin"}),
        (["refine:viewer@acme", "refine:admin@acme"], {"acme": "admin"}),
        *(
            (claim, {})
            for claim in (
                *(None, "", [], {}, 7, True, [None, 7, ["refine:admin@acme"]]),
                *("refine:site_admin@acme", "refine:admin@", "refine:admin@Acme", "admin@acme"),
                *(["xrefine:admin@acme"], ["refine:admin@acme "], ["refine:admin@acme\n"]),
                {"refine:admin@acme": True},
            )
        ),
    ],
)
def test_only_plain_values_give_a_role(claim, roles):
    assert roles_claimed(claim) == roles
