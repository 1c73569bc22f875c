"""Accounts and their users."""

from refine.models.people.account import Account as Account
from refine.models.people.invitation import Invitation as Invitation
from refine.models.people.second_factor import SecondFactor as SecondFactor
from refine.models.people.sign_in import PasswordGuess as PasswordGuess, SignIn as SignIn
from refine.models.people.user import User as User
