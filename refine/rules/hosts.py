"""Hosts of URLs."""

from ipaddress import ip_address


def is_this_machine(host: str) -> bool:
    """Tell whether a host, a name or an address, is this machine itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
