"""docs/prompts.md: what an agent's model reads, printed from the code.

``python -m tests.printed_prompts`` (``make prompts``) writes the page.
"""
