"""Files that people send: they stay in memory, so that nothing of them is ever on a disk."""

import io
from typing import IO

import flask
from werkzeug.formparser import FormDataParser

LARGEST_FILE_MEGABYTES = 4

# Beside the file there are the other fields of its form. A form without a file is smaller still.
_LARGEST_FORM_BYTES = LARGEST_FILE_MEGABYTES * 1024 * 1024 + 64 * 1024


class Request(flask.Request):
    """A request whose files are never written to temporary ones; in return its forms are bounded.

    Werkzeug spools a file of more than 500 kB to the disk. A form that is too large is
    RequestEntityTooLarge, for whoever looks into it.
    """

    def make_form_data_parser(self) -> FormDataParser:
        """Return the parser of this request's form."""
        self.max_content_length = _LARGEST_FORM_BYTES
        return super().make_form_data_parser()

    def _get_file_stream(
        self,
        total_content_length: int | None,
        content_type: str | None,
        filename: str | None = None,
        content_length: int | None = None,
    ) -> IO[bytes]:
        return io.BytesIO()
