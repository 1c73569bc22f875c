"""An agent with a memory: any OpenAI-compatible server answers, and Refine remembers.

    REFINE_TOKEN=refine_agent_… MODEL_URL=https://…/v1 MODEL=… python agent.py "Remember: …"

Without arguments it answers each line of its input. MODEL_KEY is the key of the model server,
REFINE_URL the address of Refine (http://localhost:8000). Needs `requests`, but not Refine itself.
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


def answer(prompt: str) -> str:
    """Return the agent's answer; on the way it saves what it wants to remember."""
    memory = json_of(refine.get(f"{REFINE_URL}/context", timeout=30))["context"]
    tools = json_of(refine.get(f"{REFINE_URL}/tools", timeout=30))
    messages = [
        {"role": "system", "content": f"You have a memory. Its content:\n\n{memory or ''}"},
        {"role": "user", "content": prompt},
    ]
    while True:
        body = {"model": os.environ["MODEL"], "messages": messages, "tools": tools}
        reply = json_of(model.post(MODEL_URL, json=body, timeout=300))["choices"][0]["message"]
        messages.append(reply)
        if not reply.get("tool_calls"):
            return reply["content"]
        for call in reply["tool_calls"]:
            # the arguments as the model wrote them: Refine tells the model what is wrong
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            url = f"{REFINE_URL}/tools/{quote(name, safe='')}/calls"
            result = refine.post(url, data=arguments.encode(), timeout=30)
            if result.status_code != 404:  # the model is told about an unknown tool, too
                result.raise_for_status()
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result.text})


def json_of(response: requests.Response) -> dict:
    """Return the JSON of a response; raises HTTPError for an error."""
    response.raise_for_status()
    return response.json()


if __name__ == "__main__":
    for line in [" ".join(sys.argv[1:])] if sys.argv[1:] else sys.stdin:
        print(answer(line.strip()), flush=True)
