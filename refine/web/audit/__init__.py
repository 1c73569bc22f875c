"""The audit log: a filtered list with its days, a page for each record, and exports.

``filters`` reads what the URL asks for, ``strip`` counts the records of each day, ``sentences``
says what a record tells, ``exports`` sends records as files, and ``pages`` shows them.
"""

from refine.web.audit.pages import pages
from refine.web.audit.strip import register

__all__ = ["pages", "register"]
