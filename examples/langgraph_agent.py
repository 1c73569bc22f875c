"""A LangGraph store in Refine: an item is a memory, named by its namespace and key.

    pip install '.[langgraph]'
    REFINE_TOKEN=refine_agent_… python langgraph_agent.py food "Bo likes rye bread"
    REFINE_TOKEN=refine_agent_… python langgraph_agent.py "Which bread does Bo like?"

A graph is given it by `builder.compile(store=store)`; its nodes find it in their runtime.
"""

import sys

from refine_client import Refine
from refine_client.langgraph_store import RefineStore

BO = ("users", "bo")


def main(words: list[str]) -> None:
    """Put a text under a key, or search with a question."""
    store = RefineStore(Refine())
    if len(words) == 2:
        key, text = words
        store.put(BO, key, {"content": text})
    else:
        for item in store.search(BO, query=words[0], limit=3):
            print(f"{item.key}: {item.value['content']}")


if __name__ == "__main__":
    main(sys.argv[1:])
