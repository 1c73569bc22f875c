"""A column that is added to a table is signed, imaged and hashed without being listed."""

import subprocess
import sys

_ADD_A_COLUMN_TO_EACH = """
from sqlalchemy import LargeBinary, Text
from sqlalchemy.orm import mapped_column

from refine.models import AgentMemory, AuditLog, SessionEntry
from refine.models.attested import plain_rows, signed_columns
from refine.models.audit import ChainHead
from refine.models.audit.record import plain_records
from refine.models.integrity import attested_kinds
from refine.models.ledger.image import image_fields, is_sealed_field

kinds = [*attested_kinds(), AgentMemory, SessionEntry, ChainHead]
for kind in (*kinds, AuditLog):
    kind.scratch = mapped_column("scratch", Text)
AgentMemory.sealed_scrap = mapped_column("scrap", LargeBinary)

for kind in kinds:
    assert "scratch" in signed_columns(kind), kind
    assert "scratch" in plain_rows(kind).selected_columns, kind
assert "scratch" in plain_records().selected_columns
assert {"scratch", "scrap"} <= image_fields().keys()
assert (is_sealed_field("scratch"), is_sealed_field("scrap")) == (False, True)
print("each was found")
"""


def test_a_new_column_is_covered_without_another_edit() -> None:
    script = [sys.executable, "-c", _ADD_A_COLUMN_TO_EACH]

    done = subprocess.run(script, capture_output=True, text=True, check=False)  # noqa: S603

    assert (done.stdout.strip(), done.stderr) == ("each was found", "")
