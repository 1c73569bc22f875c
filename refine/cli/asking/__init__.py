"""A short trial of a model over the configured provider, for ``refine doctor --ask``.

``provider_list`` says what the provider's list of models tells, ``trial`` asks the model, and
``answers`` says what came back and what to set; ``other_dialects`` finds the dialect in which a
server takes what it refused.
"""

from refine.cli.asking.answers import about_answers
from refine.cli.asking.finding import Finding
from refine.cli.asking.provider_list import about_provider
from refine.cli.asking.trial import Trial, prompt_tokens_of_one_request

__all__ = [
    "Finding",
    "Trial",
    "about_answers",
    "about_provider",
    "prompt_tokens_of_one_request",
]
