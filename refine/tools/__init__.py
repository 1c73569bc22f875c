"""The tools that models may call."""

from refine.tools.memory_task import PromoteTool, SaveToJournalTool
from refine.tools.own_memories import OwnMemoriesTool
from refine.tools.refinement import RefinementTool
from refine.tools.save_memory import SaveMemoryTool
from refine.tools.self_authoring import SelfAuthoringTool

__all__ = [
    "OwnMemoriesTool",
    "PromoteTool",
    "RefinementTool",
    "SaveMemoryTool",
    "SaveToJournalTool",
    "SelfAuthoringTool",
]
