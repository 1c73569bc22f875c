"""The licences of what runs with Refine, as the packages state them."""

import re
from importlib.metadata import metadata

import pytest

from tests.supply.locked import RUNTIME, Locked, locked_in

# Whoever runs or passes on Refine with these has to keep their notices, and nothing else.
ALLOWED = {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "MIT", "MIT-0", "PSF-2.0"}

# Each with its licence, and why it may be here.
EXCEPTIONS = {
    "certifi": ("MPL-2.0", "a list of certificates, used as it comes"),
    "crontab": ("LGPL-2.1-or-later", "a library of rq-scheduler's, used as it comes"),
    "locate": ("", "of wordfreq; its file LICENSE has the MIT licence"),
    "orjson": ("MPL-2.0 AND (Apache-2.0 OR MIT)", "a library, used as it comes"),
    "psycopg": ("LGPL-3.0-only", "a library, used as it comes and exchangeable"),
    "psycopg-binary": ("LGPL-3.0-only", "the compiled part of psycopg"),
    "regex": ("Apache-2.0 AND CNRI-Python", "a library of wordfreq's, used as it comes"),
    "waitress": ("ZPL-2.1", "a library, used as it comes; its licence asks for its notice"),
}

# What older packages say instead of an SPDX expression.
_OF_CLASSIFIERS = {
    "MIT License": "MIT",
    "BSD License": "BSD-3-Clause",  # or BSD-2-Clause: it does not say which
    "Apache Software License": "Apache-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "GNU Lesser General Public License v2 (LGPLv2)": "LGPL-2.1-or-later",
    "Zope Public License": "ZPL-2.1",
}
_CLASSIFIER = "License :: OSI Approved :: "


def licence_of(name: str) -> str:
    """Return the SPDX expression of an installed package; empty if it states nothing."""
    stated = metadata(name)
    if expression := stated.get("License-Expression"):
        return expression
    classifiers = [
        each.removeprefix(_CLASSIFIER)
        for each in stated.get_all("Classifier", [])
        if each.startswith(_CLASSIFIER)
    ]
    known = [_OF_CLASSIFIERS[each] for each in classifiers if each in _OF_CLASSIFIERS]
    text = stated.get("License", "")
    return known[0] if known else text if re.fullmatch(r"[\w.+-]+", text) else ""


def is_allowed(expression: str) -> bool:
    """Tell whether one of the alternatives has only allowed parts; brackets are not understood."""
    return any(
        all(part in ALLOWED for part in alternative.split(" AND "))
        for alternative in expression.split(" OR ")
    )


def here() -> list[Locked]:
    return [each for each in locked_in(RUNTIME) if each.is_for_this_machine]


@pytest.mark.parametrize("name", [each.name for each in here()])
def test_the_licence_of_each_package_is_allowed_or_an_exception(name: str) -> None:
    licence = licence_of(name)

    expected, _ = EXCEPTIONS.get(name, (None, None))
    assert licence == expected if expected is not None else is_allowed(licence), (
        f"{name}: {licence!r}"
    )


def test_no_exception_is_left_over() -> None:
    assert EXCEPTIONS.keys() <= {each.name for each in here()}
    assert not [name for name, (licence, _) in EXCEPTIONS.items() if is_allowed(licence)]
