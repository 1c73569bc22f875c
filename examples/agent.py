"""An agent with a memory: its words from any OpenAI-compatible server, its memory from Refine.

    REFINE_TOKEN=refine_agent_… MODEL_URL=https://…/v1 MODEL=… python agent.py "Remember: …"

Without a sentence to answer it reads one a line. MODEL_KEY is the model server's key, REFINE_URL
where Refine answers (http://localhost:8000). Needs `requests`, and nothing of Refine.
"""

import os
import sys
from urllib.parse import quote

import requests

REFINE_URL = os.environ.get("REFINE_URL", "http://localhost:8000") + "/api/v1"
MODEL_URL = os.environ.get("MODEL_URL", "https://openrouter.ai/api/v1") + "/chat/completions"

refine, model = requests.Session(), requests.Session()
refine.headers["Authorization"] = f"Bearer {os.environ['REFINE_TOKEN']}"
model.headers["Authorization"] = f"Bearer {os.environ.get('MODEL_KEY', '')}"


def answer(said: str) -> str:
    """Return what the agent answers; whatever it wants to keep, it saves on the way."""
    memory = asked(refine.get(f"{REFINE_URL}/context", timeout=30))["context"]
    tools = asked(refine.get(f"{REFINE_URL}/tools", timeout=30))
    messages = [
        {"role": "system", "content": f"You have a memory. What it holds:\n\n{memory or ''}"},
        {"role": "user", "content": said},
    ]
    while True:
        body = {"model": os.environ["MODEL"], "messages": messages, "tools": tools}
        reply = asked(model.post(MODEL_URL, json=body, timeout=300))["choices"][0]["message"]
        messages.append(reply)
        if not reply.get("tool_calls"):
            return reply["content"]
        for call in reply["tool_calls"]:
            # the arguments go as the model wrote them: what is wrong with them it is told
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            url = f"{REFINE_URL}/tools/{quote(name, safe='')}/calls"
            result = refine.post(url, data=arguments.encode(), timeout=30)
            if result.status_code != 404:  # a tool that there is not: the model is told so, too
                result.raise_for_status()
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result.text})


def asked(response: requests.Response) -> dict:
    """Return the JSON of an answer; stop at any other."""
    response.raise_for_status()
    return response.json()


if __name__ == "__main__":
    for line in [" ".join(sys.argv[1:])] if sys.argv[1:] else sys.stdin:
        print(answer(line.strip()), flush=True)
