"""Uploaded files stay in memory, so that their contents never reach a disk."""

import io
from typing import IO

import flask
from werkzeug.formparser import FormDataParser

LARGEST_FILE_MEGABYTES = 4

# Room for the other fields beside the file.
_LARGEST_FORM_BYTES = LARGEST_FILE_MEGABYTES * 1024 * 1024 + 64 * 1024


class Request(flask.Request):
    """A request that keeps uploads in memory, and limits the size of forms in return.

    Werkzeug by itself spools files of more than 500 kB to the disk. Reading a form that is too
    large raises RequestEntityTooLarge.
    """

    def make_form_data_parser(self) -> FormDataParser:
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
