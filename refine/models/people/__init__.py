"""Accounts and their users."""

from refine.models.people.account import Account
from refine.models.people.invitation import Invitation
from refine.models.people.sign_in import PasswordGuess, SignIn
from refine.models.people.user import User

__all__ = ["Account", "Invitation", "PasswordGuess", "SignIn", "User"]
