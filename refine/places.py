"""Where templates, static files, migrations and the laboratory are."""

from pathlib import Path

_PACKAGE = Path(__file__).parent
_IN_WHEEL = _PACKAGE / "_root"

# The folder that holds them: the root of a checkout; a wheel carries it within the package.
ROOT = _IN_WHEEL if _IN_WHEEL.is_dir() else _PACKAGE.parent
