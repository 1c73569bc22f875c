"""How providers differ, as data: what each takes in a request, and gives in an answer.

All of them speak OpenAI's chat completions, each with rules of its own. What is the same for all
stands in ``provider`` and ``replies``. Every entry names its sources.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from refine.errors import SettingsError
from refine.llm.messages import Privacy

_EPHEMERAL = {"type": "ephemeral"}

# What a reply may carry besides its text and calls; a provider that sent it takes it back.
_REASONING = ("reasoning", "reasoning_details", "reasoning_content")


def _no_fields(_privacy: Privacy) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Dialect:
    """What one provider takes and gives.

    hosts           its servers, or domains of them: these have it by default
    output_limit    the name of the limit of an answer; a model's entry in the provider's list may
                    name another (``limits_in_list``)
    no_content      what stands beside tool calls in place of content
    kept            fields of an answer that the next request repeats, besides text and calls
    always_kept     those that must be there, if only empty, beside tool calls
    marks_ledger    beginnings of model ids whose caches must be told where the stable part ends
    marks_request   those whose caches follow the conversation, by one mark for the whole request
    fields          fields of its own in the body of each request
    headers         headers of its own
    cost_header     the header that tells what an answer cost
    retry_header    the header that stands in where Retry-After is missing
    list_path       where it lists its models
    not_found       what HTTP 404 means, and what to do about it
    """

    name: str
    sources: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    output_limit: str = "max_tokens"
    limits_in_list: bool = False
    no_content: str | None = None
    kept: tuple[str, ...] = _REASONING
    always_kept: tuple[str, ...] = ()
    marks_ledger: tuple[str, ...] = ()
    marks_request: tuple[str, ...] = ()
    fields: Callable[[Privacy], dict[str, Any]] = _no_fields
    headers: tuple[tuple[str, str], ...] = ()
    cost_header: str | None = None
    retry_header: str = "Retry-After"
    list_path: str = "/models"
    not_found: str = (
        "the model is not known or not offered at this address; check its name and "
        "OPENROUTER_BASE_URL"
    )

    def needs_ledger_mark(self, model_id: str) -> bool:
        """Tell whether the model's cache must be told where the ledger ends."""
        return model_id.casefold().startswith(self.marks_ledger) if self.marks_ledger else False

    def own_fields(self, model_id: str, privacy: Privacy) -> dict[str, Any]:
        """Return what a request to this provider carries besides the common fields."""
        is_marked = bool(self.marks_request) and model_id.casefold().startswith(self.marks_request)
        mark = {"cache_control": _EPHEMERAL} if is_marked else {}
        return {**self.fields(privacy), **mark}


def _openrouter_fields(privacy: Privacy) -> dict[str, Any]:
    return {
        "provider": {
            "data_collection": "deny",
            "require_parameters": True,
            "zdr": privacy.zero_data_retention,
        },
        "plugins": [{"id": "context-compression", "enabled": False}],
        "session_id": privacy.session_id,
        "user": privacy.account_ref,
    }


OPENROUTER = Dialect(
    "openrouter",
    sources=(
        "https://openrouter.ai/docs/api/reference/parameters",
        "https://openrouter.ai/docs/guides/best-practices/prompt-caching",
        "https://openrouter.ai/docs/guides/routing/provider-selection",
    ),
    hosts=("openrouter.ai",),
    output_limit="max_completion_tokens",
    limits_in_list=True,
    marks_ledger=("anthropic/", "qwen/", "alibaba/"),
    marks_request=("anthropic/",),
    fields=_openrouter_fields,
    headers=(("X-OpenRouter-Metadata", "enabled"),),
    not_found="no provider serves this model with tools under the account's privacy settings",
)

PLAIN = Dialect(
    "plain",
    sources=("https://platform.openai.com/docs/api-reference/chat/create",),
    no_content="",
)

DIALECTS = (
    OPENROUTER,
    Dialect(
        "openai",
        sources=(
            "https://github.com/openai/openai-openapi",
            "https://github.com/openai/openai-python/issues/2046",
        ),
        hosts=("api.openai.com",),
        output_limit="max_completion_tokens",
        kept=(),
    ),
    Dialect(
        "azure",
        sources=(
            "https://learn.microsoft.com/azure/ai-services/openai/api-version-deprecation",
            "https://github.com/openinterpreter/openinterpreter/issues/115",
        ),
        hosts=("openai.azure.com", "services.ai.azure.com"),
        output_limit="max_completion_tokens",
        kept=(),
    ),
    Dialect(
        "anthropic",
        sources=("https://platform.claude.com/docs/en/api/openai-sdk",),
        hosts=("api.anthropic.com",),
        kept=(),
    ),
    Dialect(
        "gemini",
        sources=(
            "https://ai.google.dev/gemini-api/docs/openai",
            "https://github.com/openai/codex/issues/7586",  # signatures of thoughts
        ),
        hosts=("generativelanguage.googleapis.com", "aiplatform.googleapis.com"),
        kept=(),
    ),
    Dialect(
        "deepseek",
        sources=(
            "https://api-docs.deepseek.com/guides/thinking_mode.md",
            "https://github.com/anomalyco/opencode/issues/24083",
        ),
        hosts=("api.deepseek.com",),
        no_content="",
        kept=(),
        always_kept=("reasoning_content",),
    ),
    Dialect(
        "moonshot",
        sources=(
            "https://github.com/MoonshotAI/kimi-cli",
            "https://github.com/continuedev/continue/issues/11600",
        ),
        hosts=("api.moonshot.ai", "api.moonshot.cn"),
        output_limit="max_completion_tokens",
        kept=("reasoning_content",),
    ),
    Dialect(
        "mistral",
        sources=(
            "https://github.com/mistralai/platform-docs-public",
            "https://github.com/BerriAI/litellm/issues/30835",
        ),
        hosts=("api.mistral.ai",),
        no_content="",
        kept=(),
        fields=lambda privacy: {"prompt_cache_key": privacy.session_id},
    ),
    Dialect(
        "xai",
        sources=(
            "https://docs.x.ai/developers/cost-tracking.md",
            "https://github.com/badlogic/pi-mono",
        ),
        hosts=("api.x.ai",),
        output_limit="max_completion_tokens",
        no_content="",
        kept=(),
        list_path="/language-models",
    ),
    Dialect(
        "groq",
        sources=(
            "https://github.com/groq/groq-python",
            "https://github.com/NousResearch/hermes-agent/issues/11089",
        ),
        hosts=("api.groq.com",),
        output_limit="max_completion_tokens",
        no_content="",
        kept=("reasoning",),
    ),
    Dialect(
        "zai",
        sources=("https://docs.z.ai/guides/capabilities/thinking-mode.md",),
        hosts=("api.z.ai", "open.bigmodel.cn"),
        no_content="",
        kept=("reasoning_content",),
    ),
    Dialect(
        "alibaba",
        # cache marks need content in parts, which some of its models refuse
        sources=(
            "https://github.com/QwenLM/qwen-code/issues/5265",
            "https://github.com/can1357/oh-my-pi/issues/1859",
        ),
        hosts=("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com"),
        no_content="",
        kept=(),
    ),
    Dialect(
        "litellm",
        sources=(
            "https://docs.litellm.ai/docs/proxy/response_headers",
            "https://github.com/BerriAI/litellm/issues/21553",  # the upstream's Retry-After
        ),
        no_content="",
        kept=("reasoning_content", "thinking_blocks"),
        cost_header="x-litellm-response-cost",
        retry_header="llm_provider-retry-after",
        list_path="/model/info",
    ),
    Dialect(
        "llama-cpp",
        sources=("https://github.com/abetlen/llama-cpp-python",),
        no_content="",
        kept=("reasoning_content",),
    ),
    PLAIN,
)

NAMES = tuple(dialect.name for dialect in DIALECTS)


def named(name: str) -> Dialect:
    """Return the dialect of this name; SettingsError if there is none."""
    for dialect in DIALECTS:
        if dialect.name == name:
            return dialect
    raise SettingsError(f"REFINE_DIALECT must be one of {', '.join(NAMES)}")


def of_host(host: str) -> Dialect:
    """Return the dialect of a server: OpenRouter's, unless the host is another provider's."""
    return of_known_host(host) or OPENROUTER


def of_known_host(host: str) -> Dialect | None:
    """Return the dialect of a provider's own host, or None if the host is nobody's."""
    for dialect in DIALECTS:
        if any(host == known or host.endswith(f".{known}") for known in dialect.hosts):
            return dialect
    return None
