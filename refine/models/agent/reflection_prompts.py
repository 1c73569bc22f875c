"""The two prompts for what an agent keeps between its sessions.

``reflection_prompt`` says what to keep of a conversation, ``memory_reflection_prompt`` how to look
back over the journal. Earlier versions kept each in the other's column; ``refine db upgrade`` moves
them, agent by agent, and until then they are read from where they are.
"""

from typing import Any

from sqlalchemy.orm import Mapped, mapped_column

from refine.models.agent.eligibility import Eligibility
from refine.models.columns import Sealed, SealedText
from refine.rules.content import prompt_text

# Each prompt, and the one in whose column earlier versions kept it.
EXCHANGED = {
    "reflection_prompt": "memory_reflection_prompt",
    "memory_reflection_prompt": "reflection_prompt",
}
PROMPTS_EXCHANGED = "agent_prompts_exchanged"

_NOTE = (
    "An upgrade exchanged the names of two of my settings: memory_reflection_prompt is now what "
    "guides me when I look back over my journal, and reflection_prompt what guides me when I "
    "remember a conversation. My words were moved along, so each does what it did before."
)


class _ReflectionPrompt(SealedText[str | None]):
    """One of the two prompts, read and written in the column where the agent's row has it."""

    def _column(self, instance: Any) -> str:
        _ = instance.is_genuine  # loads the row as it was at one moment
        return self._name if instance.prompts_in_place else EXCHANGED[self._name]


class ReflectionPrompts(Eligibility):
    """The two prompts, and how they come into place."""

    sealed_reflection_prompt: Mapped[Sealed | None] = mapped_column(
        "reflection_prompt", deferred=True, deferred_group="prompts"
    )
    sealed_memory_reflection_prompt: Mapped[Sealed | None] = mapped_column(
        "memory_reflection_prompt", deferred=True, deferred_group="prompts"
    )
    # NULL for agents of earlier versions, whose digests do not cover this column
    prompts_in_place: Mapped[bool | None]

    reflection_prompt = _ReflectionPrompt(prompt_text)
    memory_reflection_prompt = _ReflectionPrompt(prompt_text)

    def put_prompts_in_place(self) -> None:
        """Move each of the two prompts to its own column; nothing happens the second time.

        Recorded as ``agent_prompts_exchanged``, and the agent is told if it has one of them. The
        caller has locked the agent.
        """
        if self.prompts_in_place:
            return
        texts = {prompt: getattr(self, prompt) for prompt in EXCHANGED}
        self.prompts_in_place = True
        for prompt, text in texts.items():
            setattr(self, prompt, text)
        self.record(PROMPTS_EXCHANGED, subject=("Agent", self.id))
        if any(texts.values()):
            self.ledger.add_journal_note(_NOTE)
