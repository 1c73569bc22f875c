"""The tools that models may call."""

from refine.tools.memory_task import (
    ErasePersonTool as ErasePersonTool,
    PromoteTool as PromoteTool,
    SaveToJournalTool as SaveToJournalTool,
)
from refine.tools.own_memories import OwnMemoriesTool as OwnMemoriesTool
from refine.tools.refinement import RefinementTool as RefinementTool
from refine.tools.save_memory import SaveMemoryTool as SaveMemoryTool
from refine.tools.self_authoring import SelfAuthoringTool as SelfAuthoringTool
