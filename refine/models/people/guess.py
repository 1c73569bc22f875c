"""Guesses at passwords: counted before they are checked, and refused when there are too many."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from refine import clock
from refine.errors import TooMany
from refine.models.attested import keyed_hash
from refine.models.tally import Tally
from refine.rules.quantities import rough_span

GUESS_WINDOW = timedelta(minutes=15)
MAX_GUESSES = 10
MAX_GUESSES_OF_ADDRESS = 100

# The owner of one IPv6 address has all of its network.
_IPV6_NETWORK_BITS = 64


@dataclass(frozen=True)
class PasswordGuess:
    """A password typed for one user, from one network address.

    Counted for the user and the address together, so that nobody can lock a user out from
    elsewhere, and for the address. ``device`` is a browser in which the user signed in before: it
    has a counter of its own, so that strangers behind the same address cannot lock it out either.
    ``sign_in_id`` (of the signed-in browser) has one too: changing the address does not help.
    """

    email: str
    address: str
    device: str | None = None
    sign_in_id: int | None = None

    def count(self, at: datetime | None = None) -> None:
        """Count the guess, before the password is checked; TooMany if it must not be checked.

        The caller commits in either case, so that guesses made at the same time all count.
        """
        at, limits = at or clock.now(), self._limits
        counted = Tally.add(limits, lasts=GUESS_WINDOW, at=at)
        refused = [
            tallied.ends_at or at for key, tallied in counted.items() if tallied.count > limits[key]
        ]
        if refused:
            seconds = (max(refused) - at).total_seconds()
            raise TooMany(
                f"too many wrong passwords; try again in {rough_span(GUESS_WINDOW)}",
                retry_after_seconds=max(1, round(seconds)),
            )

    def uncount(self, at: datetime | None = None) -> None:
        """Uncount a right guess, so that only wrong ones count."""
        Tally.add(self._limits, lasts=GUESS_WINDOW, step=-1, at=at)

    @property
    def _limits(self) -> Mapping[str, int]:
        """How many guesses are allowed, by the key of their tally; only keyed hashes are stored."""
        network = network_of(self.address)
        email = self.email.strip().lower()
        if self.device is not None:
            limits = {f"device {_hashed(self.device)}": MAX_GUESSES}
        else:
            limits = {
                f"user at address {_hashed(f'{network} {email}')}": MAX_GUESSES,
                address_key(self.address): MAX_GUESSES_OF_ADDRESS,
            }
        if self.sign_in_id is not None:
            limits[f"sign-in {self.sign_in_id}"] = MAX_GUESSES
        return limits


def address_key(address: str) -> str:
    """Return the key under which a network address is counted."""
    return f"address {_hashed(network_of(address))}"


def _hashed(text: str) -> str:
    return keyed_hash(text, "tallies.key")


def network_of(address: str) -> str:
    """Return the address, or the network of an IPv6 address; other text unchanged."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((int(parsed), _IPV6_NETWORK_BITS), strict=False))
    return str(parsed)
