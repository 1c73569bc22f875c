"""A day of an agent, through the client that openapi-python-client makes of the document."""

import json
import os

from refine_api import AuthenticatedClient
from refine_api.api.agent import (
    correct_memory,
    forget_memory,
    get_memory,
    list_memories,
    save_memory,
)
from refine_api.models import (
    Correction,
    Memory,
    MemoryPage,
    MemoryWithHistory,
    NewMemory,
    NewMemoryMemoryType,
    ProblemDetails,
    Removal,
)

client = AuthenticatedClient(
    base_url=f"{os.environ['REFINE_URL']}/api/v1", token=os.environ["REFINE_TOKEN"]
)


def day(locked_id: int) -> dict[str, object]:
    new = NewMemory(content="Anna has a sloop.", memory_type=NewMemoryMemoryType.CORE)
    saved = save_memory.sync(client=client, body=new)
    assert isinstance(saved, Memory)
    seen = get_memory.sync(saved.id, client=client)
    assert isinstance(seen, MemoryWithHistory)
    edit = Correction(content="Anna has a cutter.")
    edited = correct_memory.sync(saved.id, client=client, body=edit)
    assert isinstance(edited, Memory)
    refused = correct_memory.sync(locked_id, client=client, body=edit)
    assert isinstance(refused, ProblemDetails)
    page = list_memories.sync(client=client, limit=200)
    assert isinstance(page, MemoryPage)
    forgotten = forget_memory.sync(edited.id, client=client)
    assert isinstance(forgotten, Removal)
    return {
        "seen": seen.content,
        "listed": [memory.id for memory in page.memories],
        "edited": edited.id,
        "refused": refused.status,
        "forgotten": forgotten.status.value,
    }


print(json.dumps(day(int(os.environ["LOCKED_ID"]))))
