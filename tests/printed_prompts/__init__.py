"""docs/prompts.md: what the models of three agents read, printed from the code.

``agents`` are the three, with fixed ids and dates; ``page`` prints their conversations;
``python -m tests.printed_prompts`` (``make prompts``) writes the page.
"""
