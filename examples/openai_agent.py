"""An agent of the OpenAI Agents SDK, which remembers what it talked about.

    pip install '.[openai-agents]'
    REFINE_TOKEN=refine_agent_… OPENAI_API_KEY=… MODEL=… python openai_agent.py

It answers each line of its input. At the end Refine is handed the conversation, and the agent's
model in Refine keeps what is worth it; the next conversation begins with that. OPENAI_BASE_URL is
the address of any server that speaks chat completions.
"""

import asyncio
import os
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

from refine_client import Refine
from refine_client.openai_session import RefineSession


async def talk() -> None:
    """Answer until the input ends, then hand the conversation over."""
    refine = Refine()
    agent = Agent(
        name="agent",
        model=OpenAIChatCompletionsModel(os.environ["MODEL"], AsyncOpenAI()),
        instructions=f"You have a memory. Its content:\n\n{refine.context() or ''}",
    )
    session = RefineSession("this conversation", refine)
    for line in sys.stdin:
        result = await Runner.run(agent, line.strip(), session=session)
        print(result.final_output, flush=True)
    await session.finish()


if __name__ == "__main__":
    set_tracing_disabled(True)
    asyncio.run(talk())
