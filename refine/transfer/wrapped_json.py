"""Files whose JSON document stands in a JSON string: ``"{\\"agents\\": …}"``."""

import io
from typing import BinaryIO

from refine.errors import InvalidValue
from refine.rules.strict_json import strict_json
from refine.transfer.json_lines import BYTE_ORDER_MARK

MAX_WRAPPED_BYTES = 20_000_000


def unwrapped(stream: BinaryIO) -> BinaryIO:
    """Return the document inside the string that the stream holds; any other stream as it is.

    The string is decoded in memory. Raises InvalidValue if it is damaged or too long for that.
    """
    is_string = stream.read(1_000).removeprefix(BYTE_ORDER_MARK).lstrip()[:1] == b'"'
    stream.seek(0)
    if not is_string:
        return stream
    file = stream.read(MAX_WRAPPED_BYTES + 1).removeprefix(BYTE_ORDER_MARK)
    if len(file) > MAX_WRAPPED_BYTES:
        raise InvalidValue(
            f"is a JSON string of more than {MAX_WRAPPED_BYTES // 10**6} MB; unwrap it first "
            "(jq -r . FILE)"
        )
    return io.BytesIO(strict_json(file, max_bytes=MAX_WRAPPED_BYTES).encode())
