"""Providers' differences from OpenAI's chat completions, as data; the comments name the sources."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from refine.errors import SettingsError
from refine.llm.messages import Privacy

# Further fields of a reply; the provider that sent one accepts it in the history.
_REASONING = ("reasoning", "reasoning_details", "reasoning_content")


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
    hosts: tuple[str, ...] = ()
    output_limit: str = "max_tokens"
    limits_in_list: bool = False
    no_content: str | None = ""
    kept: tuple[str, ...] = ()
    always_kept: tuple[str, ...] = ()
    marks_ledger: tuple[str, ...] = ()
    marks_request: tuple[str, ...] = ()
    fields: Callable[[Privacy], dict[str, Any]] = lambda _privacy: {}
    headers: tuple[tuple[str, str], ...] = ()
    cost_header: str | None = None
    retry_header: str = "Retry-After"
    list_path: str = "/models"
    not_found: str = (
        "the model is not known or not offered at this address; check its name and "
        "OPENROUTER_BASE_URL"
    )

    def needs_ledger_mark(self, model_id: str) -> bool:
        return model_id.casefold().startswith(self.marks_ledger)

    def own_fields(self, model_id: str, privacy: Privacy) -> dict[str, Any]:
        is_marked = model_id.casefold().startswith(self.marks_request)
        mark = {"cache_control": {"type": "ephemeral"}} if is_marked else {}
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


# https://openrouter.ai/docs/api/reference/parameters
# https://openrouter.ai/docs/guides/best-practices/prompt-caching
# https://openrouter.ai/docs/guides/routing/provider-selection
OPENROUTER = Dialect(
    "openrouter",
    hosts=("openrouter.ai",),
    output_limit="max_completion_tokens",
    limits_in_list=True,
    no_content=None,
    kept=_REASONING,
    marks_ledger=("anthropic/", "qwen/", "alibaba/"),
    marks_request=("anthropic/",),
    fields=_openrouter_fields,
    headers=(("X-OpenRouter-Metadata", "enabled"),),
    not_found="no provider serves this model with tools under the account's privacy settings",
)

# https://platform.openai.com/docs/api-reference/chat/create
PLAIN = Dialect("plain", kept=_REASONING)

DIALECTS = (
    OPENROUTER,
    # https://github.com/openai/openai-openapi
    # https://github.com/openai/openai-python/issues/2046
    Dialect(
        "openai",
        hosts=("api.openai.com",),
        output_limit="max_completion_tokens",
        no_content=None,
    ),
    # https://learn.microsoft.com/azure/ai-services/openai/api-version-deprecation
    # https://github.com/openinterpreter/openinterpreter/issues/115
    Dialect(
        "azure",
        hosts=("openai.azure.com", "services.ai.azure.com"),
        output_limit="max_completion_tokens",
        no_content=None,
    ),
    # https://platform.claude.com/docs/en/api/openai-sdk
    Dialect("anthropic", hosts=("api.anthropic.com",), no_content=None),
    # https://ai.google.dev/gemini-api/docs/openai
    # signatures of thoughts: https://github.com/openai/codex/issues/7586
    Dialect(
        "gemini",
        hosts=("generativelanguage.googleapis.com", "aiplatform.googleapis.com"),
        no_content=None,
    ),
    # https://api-docs.deepseek.com/guides/thinking_mode.md
    # https://github.com/anomalyco/opencode/issues/24083
    Dialect("deepseek", hosts=("api.deepseek.com",), always_kept=("reasoning_content",)),
    # https://github.com/MoonshotAI/kimi-cli
    # https://github.com/continuedev/continue/issues/11600
    Dialect(
        "moonshot",
        hosts=("api.moonshot.ai", "api.moonshot.cn"),
        output_limit="max_completion_tokens",
        no_content=None,
        kept=("reasoning_content",),
    ),
    # https://github.com/mistralai/platform-docs-public
    # https://github.com/BerriAI/litellm/issues/30835
    Dialect(
        "mistral",
        hosts=("api.mistral.ai",),
        fields=lambda privacy: {"prompt_cache_key": privacy.session_id},
    ),
    # https://docs.x.ai/developers/cost-tracking.md
    # https://github.com/badlogic/pi-mono
    Dialect(
        "xai",
        hosts=("api.x.ai",),
        output_limit="max_completion_tokens",
        list_path="/language-models",
    ),
    # https://github.com/groq/groq-python
    # https://github.com/NousResearch/hermes-agent/issues/11089
    Dialect(
        "groq",
        hosts=("api.groq.com",),
        output_limit="max_completion_tokens",
        kept=("reasoning",),
    ),
    # https://docs.z.ai/guides/capabilities/thinking-mode.md
    Dialect("zai", hosts=("api.z.ai", "open.bigmodel.cn"), kept=("reasoning_content",)),
    # Cache marks need content in parts, which some of its models refuse:
    # https://github.com/QwenLM/qwen-code/issues/5265
    # https://github.com/can1357/oh-my-pi/issues/1859
    Dialect("alibaba", hosts=("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com")),
    # https://docs.litellm.ai/docs/proxy/response_headers
    # the upstream's Retry-After: https://github.com/BerriAI/litellm/issues/21553
    Dialect(
        "litellm",
        kept=("reasoning_content", "thinking_blocks"),
        cost_header="x-litellm-response-cost",
        retry_header="llm_provider-retry-after",
        list_path="/model/info",
    ),
    # https://github.com/abetlen/llama-cpp-python
    Dialect("llama-cpp", kept=("reasoning_content",)),
    PLAIN,
)

NAMES = tuple(dialect.name for dialect in DIALECTS)


def named(name: str) -> Dialect:
    if name not in NAMES:
        raise SettingsError(f"REFINE_DIALECT must be one of {', '.join(NAMES)}")
    return DIALECTS[NAMES.index(name)]


def of_host(host: str) -> Dialect | None:
    for dialect in DIALECTS:
        if any(host == known or host.endswith(f".{known}") for known in dialect.hosts):
            return dialect
    return None
