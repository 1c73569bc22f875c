"""What can be wrong with this machine, its environment and Redis."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from zoneinfo import ZoneInfo

from sqlalchemy import select

from refine.diagnoses import Finding
from refine.errors import Unreachable
from refine.extensions import db
from refine.jobs.queue import redis_connection
from refine.models import Account
from refine.settings import Settings, unknown_variables

_LEAST_FREE_BYTES = 200_000_000
_MEGABYTE = 1_000_000


def unknown_settings() -> Iterator[Finding]:
    for name, near in unknown_variables().items():
        advice = f"did you mean {near}?" if near else "remove it"
        yield Finding.of("settings_unknown", name=name, advice=advice)


def data_folder(settings: Settings, least_free: int = _LEAST_FREE_BYTES) -> Iterator[Finding]:
    """Yield what keeps the bundled servers from writing."""
    folder = settings.data_dir
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        yield Finding.of("data_folder", folder=folder, reason=error.strerror)
        return
    if (free := shutil.disk_usage(folder).free) < least_free:
        yield Finding.of("disk_full", folder=folder, left=free // _MEGABYTE)


def time_zones() -> Iterator[Finding]:
    """Yield a finding if a time zone that an account uses cannot be found."""
    for name in db.session.scalars(
        select(Account.time_zone).distinct().order_by(Account.time_zone)
    ):
        try:
            ZoneInfo(name)
        except (KeyError, OSError, ValueError):
            yield Finding.of("zones_missing", zone=name)


def redis_eviction() -> Iterator[Finding]:
    """Yield a finding if a full Redis drops keys, as far as our user may know."""
    about: Mapping[str, str] = {}
    with suppress(Unreachable), redis_connection() as connection:
        about = connection.info("memory")
    policy = about.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield Finding.of("redis_evicts", policy=policy)
