"""PostgreSQL and Valkey from wheels, on sockets in the private data folder."""

from refine.embedded.folders import (
    database_url as database_url,
    kept_secret as kept_secret,
    redis_url as redis_url,
    socket_dir as socket_dir,
)
from refine.embedded.servers import (
    Processes as Processes,
    owned_servers as owned_servers,
    servers_available as servers_available,
)
