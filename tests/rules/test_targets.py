"""Where webhooks may lead."""

import ipaddress

import pytest
from hypothesis import given, strategies as st

from refine.errors import InvalidValue
from refine.rules.targets import is_public, webhook_url

PUBLIC = ["93.184.216.34", "1.1.1.1", "2606:2800:220:1::1", "::ffff:93.184.216.34", "2002:5db8::1"]
# Networks that lead into somebody's own house, or to nobody.
PRIVATE = [
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
    *("172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"),
    *("::1/128", "::/128", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8", "64:ff9b::/96"),
    *("::ffff:10.0.0.0/104", "::ffff:127.0.0.0/104", "2002:a00::/24", "2002:7f00::/24"),
    *("2001:db8::/32", "::a00:0/104"),
]
REFUSED = {
    "http://example.org/hook": "must begin with https://",
    "ftp://example.org/hook": "must begin with https://",
    "example.org": "must begin with https://",
    "": "must begin with https://",
    "https:///hook": "must name a host",
    "https://ada:secret@example.org/": "must name a host",
    "https://example.org/#part": "must name a host",
    "https://example.org:99999/": "not a URL",
    "https://[::1/": "not a URL",
    "https://example.org/a b": "without blanks",
    "https://exämple.org/": "of ASCII",
    "https://example.org/\r\nHost: other": "without blanks",
    f"https://example.org/{'a' * 2_000}": "at most",
    "https://10.0.0.7/hook": "private address",
    "https://[fd00::1]:8443/": "private address",
    "https://localhost/hook": "private address",
}


@pytest.mark.parametrize("url", REFUSED)
def test_other_urls_are_refused(url):
    with pytest.raises(InvalidValue, match=REFUSED[url]):
        webhook_url(url, is_private_allowed=False)


@pytest.mark.parametrize("url", ["https://example.org", "https://example.org:8443/a?b=c"])
def test_https_urls_are_taken_as_they_are(url):
    assert webhook_url(url, is_private_allowed=False) == url


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/hook", "https://[fd00::1]/"])
def test_private_ones_are_taken_where_the_operator_allows_them(url):
    assert webhook_url(url, is_private_allowed=True) == url


@pytest.mark.parametrize("address", PUBLIC)
def test_hosts_of_the_open_internet_are_public(address):
    assert is_public(ipaddress.ip_address(address))


@given(st.sampled_from(PRIVATE).flatmap(lambda network: st.ip_addresses(network=network)))
def test_no_address_of_these_networks_is_public(address):
    assert not is_public(address)


@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:{}", "2002:{:02x}{:02x}:{:02x}{:02x}::"]))
def test_an_address_stays_what_it_is_in_an_ipv6_address(inner, form):
    written = form.format(inner) if form.count("{") == 1 else form.format(*inner.packed)

    assert is_public(ipaddress.ip_address(written)) == is_public(inner)
