"""Where events may be sent: the URL of a webhook, and which network addresses are public."""

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from refine.errors import InvalidValue

_GLOBAL_UNICAST = IPv6Network("2000::/3")


def webhook_url(url: str, *, is_private_allowed: bool) -> str:
    """Return the URL; InvalidValue unless it is https to no private address, or both are allowed.

    What a name leads to is looked at whenever something is sent there.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise InvalidValue("url is not a URL; use https://host/path") from None
    if parts.scheme not in (("https", "http") if is_private_allowed else ("https",)):
        raise InvalidValue(
            "url must begin with https://; http:// needs REFINE_WEBHOOKS_PRIVATE=1 on the server"
        )
    if not re.fullmatch("[!-~]{1,2000}", url):
        raise InvalidValue("url must be at most 2,000 characters of ASCII, without blanks")
    if not parts.hostname or "@" in parts.netloc or "#" in url:
        raise InvalidValue("url must name a host, and have no user name, password or fragment")
    if not is_private_allowed and _is_private(parts.hostname):
        raise InvalidValue(
            "url names a private address; these need REFINE_WEBHOOKS_PRIVATE=1 on the server"
        )
    return url


def _is_private(host: str) -> bool:
    try:
        return not is_public(ip_address(host))
    except ValueError:
        return host == "localhost"


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Tell whether it is one host of the open internet: not loopback, private, link-local, shared
    (CGNAT), unique local, multicast or reserved, however it is written or tunnelled.
    """
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is not None:
            return is_public(inner)
        return address in _GLOBAL_UNICAST and address.is_global
    return address.is_global and not address.is_multicast


def is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
