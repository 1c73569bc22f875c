"""PostgreSQL and Valkey from wheels, on sockets in the private data folder."""

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
