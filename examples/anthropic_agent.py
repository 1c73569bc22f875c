"""Claude with its memory tool, and Refine behind it: each file is a memory.

    pip install '.[anthropic]'
    REFINE_TOKEN=refine_agent_… ANTHROPIC_API_KEY=… MODEL=… python anthropic_agent.py "Remember: …"

What a rule of Refine refuses comes back to Claude as the tool's error.
"""

import os
import sys

from anthropic import Anthropic

from refine_client import Refine
from refine_client.anthropic_memory import RefineMemoryTool


def answer(prompt: str) -> str:
    """Return Claude's answer; on the way it views and edits its memory."""
    runner = Anthropic().beta.messages.tool_runner(
        model=os.environ["MODEL"],
        max_tokens=2_000,
        messages=[{"role": "user", "content": prompt}],
        tools=[RefineMemoryTool(Refine())],
    )
    return "".join(block.text for block in runner.until_done().content if block.type == "text")


if __name__ == "__main__":
    print(answer(" ".join(sys.argv[1:])))
