"""The audit log: a filtered list with its days, a page for each record, and exports."""

from refine.web.audit.pages import pages

__all__ = ["pages"]
