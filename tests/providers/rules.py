"""Each provider as a strict player has it: what it refuses, how it answers, and who says so.

A rule's source is the document, schema, source code or thread where it was read. Unless a provider
documents that it ignores unknown fields, the player refuses them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.providers import checks, shapes
from tests.providers.checks import Rule, rule
from tests.providers.shapes import Shape, listed

OPENROUTER_SCHEMA = "https://github.com/OpenRouterTeam/docs/blob/c26125a/openapi/openapi.yaml"
OPENROUTER_REASONING = "https://openrouter.ai/docs/guides/best-practices/reasoning-tokens"
OPENAI_SCHEMA = "https://github.com/openai/openai-openapi/blob/f85dbe2/openapi.yaml"
OPENAI_LIMIT = "https://github.com/microsoft/clarity-agent/issues/59"
OPENAI_UNKNOWN = "https://github.com/davidmigloz/langchain_dart/issues/712"
AZURE_V1 = "https://learn.microsoft.com/azure/ai-services/openai/api-version-deprecation"
AZURE_CONTENT = "https://github.com/openinterpreter/openinterpreter/issues/115"
AZURE_LIMIT = "https://github.com/anomalyco/opencode/issues/37964"
CLAUDE_COMPATIBILITY = "https://platform.claude.com/docs/en/api/openai-sdk"
CLAUDE_EMPTY = "https://github.com/glowingjade/obsidian-smart-composer/pull/156"
CLAUDE_EMPTY_TEXT = "https://github.com/anthropics/anthropic-sdk-python/issues/461"
GEMINI_OPENAI = "https://ai.google.dev/gemini-api/docs/openai"
GEMINI_SIGNATURE = (
    "https://discuss.ai.google.dev/t/openai-api-compatibility-broken-due-to-thought-signature-on-"
    "gemini-3-pro-preview/109823"
)
GEMINI_UNKNOWN = "https://github.com/liliMozi/openhanako/issues/394"
GEMINI_SCHEMA = "https://github.com/zed-industries/zed/issues/44875"
DEEPSEEK_THINKING = "https://api-docs.deepseek.com/guides/thinking_mode.md"
DEEPSEEK_EMPTY = "https://github.com/deepseek-ai/deepseek-harness/discussions/739"
DEEPSEEK_LIMIT = (
    "https://github.com/Portkey-AI/gateway/blob/main/src/providers/deepseek/chatComplete.ts"
)
KIMI_CLIENT = (
    "https://github.com/MoonshotAI/kimi-cli/blob/4a550eff/packages/kosong/src/kosong/"
    "chat_provider/kimi.py"
)
KIMI_EMPTY = "https://github.com/AstrBotDevs/AstrBot/pull/7202"
KIMI_FIELDS = "https://java.agentscope.io/v2/en/integration/model/kimi"
KIMI_MISSING = "https://github.com/continuedev/continue/issues/11600"
MISTRAL_SCHEMA = "https://github.com/mistralai/platform-docs-public/blob/222f4ba9/openapi.yaml"
MISTRAL_LIMIT = "https://github.com/editor-code-assistant/eca/issues/231"
MISTRAL_REASONING = "https://github.com/charmbracelet/crush/issues/1590"
MISTRAL_IDS = "https://github.com/zed-industries/zed/issues/53034"
MISTRAL_ORDER = "https://github.com/BerriAI/litellm/issues/6323"
MISTRAL_TOOLS = "https://github.com/partITech/php-mistral/issues/76"
MISTRAL_COMMON = (
    "https://github.com/mistralai/mistral-common/blob/bc022b9/src/mistral_common/protocol/instruct/"
    "validator.py"
)
XAI_LISTS = (
    "https://raw.githubusercontent.com/api-evangelist/xai/refs/heads/main/openapi/"
    "xai-language-models-api-openapi.yml"
)
XAI_CLIENT = "https://github.com/vercel/ai/tree/ed857f50f1/packages/xai/src"
GROQ_SDK = "https://github.com/groq/groq-python/tree/9620fde/src/groq/types/chat"
GROQ_REASONING = "https://github.com/AstrBotDevs/AstrBot/issues/5946"
ZAI_THINKING = "https://docs.z.ai/guides/capabilities/thinking-mode"
ZAI_SDK = "https://github.com/zai-org/z-ai-sdk-python"
ALIBABA_CONTENT = "https://github.com/QwenLM/qwen-code/issues/5265"
ALIBABA_PARTS = "https://github.com/can1357/oh-my-pi/issues/1859"
ALIBABA_CLIENT = "https://github.com/vercel/ai/tree/ed857f50f1/packages/alibaba/src"
LITELLM_UNKNOWN = "https://github.com/BerriAI/litellm/issues/29618"
LLAMA_TYPES = "https://github.com/abetlen/llama-cpp-python/blob/3691546f/llama_cpp/llama_types.py"
LLAMA_SERVER = "https://github.com/abetlen/llama-cpp-python/blob/3691546f/llama_cpp/server/types.py"
INVALID_HISTORY = "https://github.com/NorthlandPositronics/Cogtrix/issues/2289"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


OPENROUTER_BODY = _words(
    "cache_control debug frequency_penalty image_config logit_bias logprobs max_completion_tokens "
    "max_tokens messages metadata min_p modalities model models parallel_tool_calls plugins "
    "prediction presence_penalty prompt_cache_key prompt_cache_options provider reasoning "
    "reasoning_effort repetition_penalty response_format route seed service_tier session_id stop "
    "stop_server_tools_when stream stream_options temperature tool_choice tools top_a top_k "
    "top_logprobs top_p trace user"
)
OPENROUTER_TERMS = _words(
    "allow_fallbacks data_collection enforce_distillable_text ignore max_price only order "
    "preferred_max_latency preferred_min_throughput quantizations require_parameters sort "
    "zdr"
)
OPENAI_BODY = _words(
    "audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens "
    "max_tokens messages metadata modalities model moderation n parallel_tool_calls prediction "
    "presence_penalty prompt_cache_key prompt_cache_options prompt_cache_retention "
    "reasoning_effort response_format safety_identifier seed service_tier stop store stream "
    "stream_options temperature tool_choice tools top_logprobs top_p user verbosity "
    "web_search_options"
)
OPENAI_MESSAGES = {
    "system": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset(
        {"role", "content", "name", "refusal", "audio", "tool_calls", "function_call"}
    ),
    "tool": frozenset({"role", "content", "tool_call_id"}),
}
GEMINI_BODY = _words(
    "extra_body frequency_penalty logit_bias logprobs max_completion_tokens max_tokens messages "
    "model n parallel_tool_calls presence_penalty reasoning_effort response_format seed stop "
    "stream stream_options temperature tool_choice tools top_logprobs top_p"
)
MISTRAL_BODY = _words(
    "frequency_penalty guardrails max_tokens messages metadata model n parallel_tool_calls "
    "prediction presence_penalty prompt_cache_key prompt_mode random_seed reasoning_effort "
    "response_format safe_prompt stop stream temperature tool_choice tools top_p"
)
MISTRAL_MESSAGES = {
    "system": frozenset({"role", "content"}),
    "user": frozenset({"role", "content"}),
    "assistant": frozenset({"role", "content", "tool_calls", "prefix"}),
    "tool": frozenset({"role", "content", "tool_call_id", "name"}),
}
GROQ_BODY = _words(
    "citation_options compound_custom disable_tool_validation documents exclude_domains "
    "frequency_penalty function_call functions include_domains include_reasoning logit_bias "
    "logprobs max_completion_tokens max_tokens messages metadata model n parallel_tool_calls "
    "presence_penalty reasoning_effort reasoning_format response_format search_settings seed "
    "service_tier stop store stream temperature tool_choice tools top_logprobs top_p user"
)
GROQ_MESSAGES = {
    **OPENAI_MESSAGES,
    "assistant": frozenset({"role", "content", "name", "reasoning", "tool_calls", "function_call"}),
}
ZAI_BODY = OPENAI_BODY | _words("do_sample request_id thinking tool_stream user_id")
ALIBABA_BODY = OPENAI_BODY | _words("enable_search enable_thinking thinking_budget top_k")
CALL = frozenset({"id", "type", "function"})


@dataclass(frozen=True)
class Provider:
    """One provider: the model that is asked, its rules in their order, and how it answers.

    answers_as       the name of the model in its answers
    path             its part of the base URL
    lists            what it serves besides completions, by path
    context_tokens   the model's context, if a list names it
    cost_usd         what one answer costs, if it tells
    """

    name: str
    model: str
    answers_as: str
    rules: tuple[Rule, ...]
    shape: Shape
    path: str = "/v1"
    lists: Mapping[str, Any] = field(default_factory=dict)
    context_tokens: int | None = None
    cost_usd: str | None = None
    cached_tokens: int = shapes.CACHED_TOKENS


def _common(source: str, model: str | None) -> tuple[Rule, ...]:
    """What every provider checks, with the provider's own document; None: any model's name."""
    return (
        rule(source, checks.has_key()),
        *([rule(source, checks.names_model(model))] if model is not None else []),
        rule(source, checks.has_valid_tools()),
        rule(source, checks.answers_every_call()),
        rule(INVALID_HISTORY, checks.has_valid_arguments()),
    )


def _openrouter() -> Provider:
    model = "anthropic/claude-sonnet-4.5"
    source = OPENROUTER_SCHEMA
    return Provider(
        "openrouter",
        model,
        "anthropic/claude-4.5-sonnet-20250929",
        (
            *_common(source, model),
            rule(source, checks.has_only(OPENROUTER_BODY | {"usage"})),
            rule(source, checks.has_only_in("provider", OPENROUTER_TERMS)),
            rule(source, checks.limits_output(*checks.LIMITS)),
            rule(source, checks.has_at_most_marks(4)),
            rule(OPENROUTER_REASONING, checks.repeats("reasoning_details")),
        ),
        Shape(
            thoughts=shapes.reasoning_details,
            call_id="toolu_{:024}".format,
            usage=shapes.openrouter_usage,
            extra={"provider": "Anthropic", "openrouter_metadata": {"pipeline": []}},
        ),
        path="/api/v1",
        lists={
            "/models": listed(
                {
                    "id": model,
                    "canonical_slug": "anthropic/claude-4.5-sonnet-20250929",
                    "context_length": 1_000_000,
                    "top_provider": {"context_length": 1_000_000, "max_completion_tokens": 64_000},
                    "supported_parameters": ["tools", "tool_choice", "max_completion_tokens"],
                    "pricing": {"prompt": "0.000003", "completion": "0.000015"},
                }
            )
        },
        context_tokens=1_000_000,
        cost_usd="0.0005",
    )


def _openai() -> Provider:
    model = "gpt-5.1"
    return Provider(
        "openai",
        model,
        "gpt-5.1-2025-11-13",
        (
            *_common(OPENAI_SCHEMA, model),
            rule(OPENAI_LIMIT, checks.has_no_limit_named("max_tokens")),
            rule(OPENAI_SCHEMA, checks.limits_output("max_completion_tokens")),
            rule(OPENAI_UNKNOWN, checks.has_only(OPENAI_BODY)),
            rule(OPENAI_SCHEMA, checks.has_only_in_messages(OPENAI_MESSAGES)),
            rule(OPENAI_SCHEMA, checks.has_only_in_calls(CALL)),
            rule(OPENAI_SCHEMA, checks.writes_beside_calls("null", "empty")),
        ),
        Shape(extra={"service_tier": "default", "system_fingerprint": None}),
        lists={"/models": listed({"id": model, "object": "model", "owned_by": "openai"})},
    )


def _azure() -> Provider:
    model = "gpt-4.1"
    return Provider(
        "azure",
        model,
        "gpt-4.1-2025-04-14",
        (
            *_common(AZURE_V1, model),
            rule(AZURE_LIMIT, checks.has_no_limit_named("max_tokens")),
            rule(AZURE_V1, checks.limits_output("max_completion_tokens")),
            rule(OPENAI_UNKNOWN, checks.has_only(OPENAI_BODY)),
            rule(OPENAI_SCHEMA, checks.has_only_in_messages(OPENAI_MESSAGES)),
            rule(OPENAI_SCHEMA, checks.has_only_in_calls(CALL)),
            rule(AZURE_CONTENT, checks.writes_beside_calls("null", "empty")),
        ),
        Shape(extra={"prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}]}),
        path="/openai/v1",
        lists={"/models": listed({"id": "gpt-4.1-2025-04-14", "object": "model"})},
    )


def _anthropic() -> Provider:
    model = "claude-sonnet-4-5"
    source = CLAUDE_COMPATIBILITY
    return Provider(
        "anthropic",
        model,
        "claude-sonnet-4-5-20250929",
        (
            *_common(source, model),
            rule(source, checks.limits_output(*checks.LIMITS)),
            rule(source, checks.has_no_cache_marks()),
            rule(CLAUDE_EMPTY, checks.says_something()),
            rule(CLAUDE_EMPTY_TEXT, checks.writes_beside_calls("null", "absent")),
        ),
        Shape(
            no_content="",
            call_id="toolu_{:024}".format,
            usage=shapes.anthropic_usage,
            headers={"x-should-retry": "false"},
        ),
        lists={
            "/models": {
                "data": [
                    {
                        "type": "model",
                        "id": "claude-sonnet-4-5-20250929",
                        "display_name": "Claude Sonnet 4.5",
                        "max_input_tokens": 200_000,
                        "max_tokens": 64_000,
                    }
                ],
                "has_more": False,
            }
        },
        cached_tokens=0,
    )


def _gemini() -> Provider:
    model = "gemini-3-pro-preview"
    return Provider(
        "gemini",
        model,
        model,
        (
            *_common(GEMINI_OPENAI, model),
            rule(GEMINI_UNKNOWN, checks.has_only(GEMINI_BODY)),
            rule(GEMINI_OPENAI, checks.limits_output(*checks.LIMITS)),
            rule(GEMINI_SIGNATURE, checks.repeats_in_calls("extra_content")),
            rule(GEMINI_SCHEMA, checks.has_single_types()),
            rule(GEMINI_SCHEMA, checks.has_no_keywords("const", "oneOf", "$ref")),
            rule(GEMINI_OPENAI, checks.has_no_cache_marks()),
        ),
        Shape(
            no_content=shapes.ABSENT,
            call_id="function-call-{:016}".format,
            on_call=shapes.thought_signature,
        ),
        path="/v1beta/openai",
        lists={
            "/models": listed({"id": f"models/{model}", "object": "model", "owned_by": "google"})
        },
    )


def _deepseek() -> Provider:
    model = "deepseek-v4-pro"
    source = DEEPSEEK_THINKING
    return Provider(
        "deepseek",
        model,
        model,
        (
            *_common(source, model),
            rule(DEEPSEEK_LIMIT, checks.limits_output("max_tokens")),
            rule(DEEPSEEK_EMPTY, checks.repeats("reasoning_content")),
            rule(source, checks.has_no_cache_marks()),
        ),
        Shape(
            no_content="",
            thoughts=shapes.reasoning_content,
            call_id="call_00_{:024}".format,
            on_call=shapes.index_of_call,
            usage=shapes.deepseek_usage,
            extra={"system_fingerprint": "fp_played"},
        ),
        lists={"/models": listed({"id": model, "object": "model", "owned_by": "deepseek"})},
    )


def _moonshot() -> Provider:
    model = "kimi-k2.6"
    return Provider(
        "moonshot",
        model,
        model,
        (
            *_common(KIMI_CLIENT, model),
            rule(KIMI_FIELDS, checks.has_only(OPENAI_BODY | {"thinking"})),
            rule(KIMI_CLIENT, checks.limits_output(*checks.LIMITS)),
            rule(KIMI_MISSING, checks.repeats("reasoning_content")),
            rule(KIMI_CLIENT, checks.has_no_cache_marks()),
            rule(KIMI_EMPTY, checks.says_something()),
        ),
        Shape(
            thoughts=shapes.reasoning_content,
            call_id="refinement:{}".format,
            usage=shapes.moonshot_usage,
        ),
        lists={
            "/models": listed({"id": model, "context_length": 262_144, "supports_reasoning": True})
        },
        context_tokens=262_144,
    )


def _mistral() -> Provider:
    model = "mistral-medium-latest"
    return Provider(
        "mistral",
        model,
        model,
        (
            *_common(MISTRAL_SCHEMA, model),
            rule(MISTRAL_LIMIT, checks.has_only(MISTRAL_BODY)),
            rule(MISTRAL_SCHEMA, checks.limits_output("max_tokens")),
            rule(MISTRAL_REASONING, checks.has_only_in_messages(MISTRAL_MESSAGES)),
            rule(MISTRAL_SCHEMA, checks.has_only_in_calls(CALL | {"index"})),
            rule(MISTRAL_SCHEMA, checks.has_no_cache_marks()),
            rule(MISTRAL_TOOLS, checks.has_no_empty_tools()),
            rule(MISTRAL_IDS, checks.has_call_ids("[A-Za-z0-9]{9}")),
            rule(MISTRAL_ORDER, checks.never_follows("user", "tool")),
            rule(MISTRAL_COMMON, checks.ends_with("user", "tool")),
            rule(MISTRAL_COMMON, checks.says_something()),
        ),
        Shape(
            no_content="",
            content=shapes.thinking_chunks,
            call_id="Call{:05}".format,
            on_call=shapes.index_of_call,
        ),
        lists={
            "/models": listed(
                {
                    "id": "mistral-medium-2604",
                    "aliases": [model, "mistral-medium"],
                    "max_context_length": 131_072,
                    "capabilities": {"completion_chat": True, "function_calling": True},
                    "type": "base",
                }
            )
        },
        context_tokens=131_072,
    )


def _xai() -> Provider:
    model = "grok-3-mini-beta"
    return Provider(
        "xai",
        model,
        "grok-3-mini",
        (
            *_common(XAI_LISTS, model),
            rule(XAI_CLIENT, checks.has_only(OPENAI_BODY | {"search_parameters"})),
            rule(XAI_CLIENT, checks.limits_output(*checks.LIMITS)),
            rule(XAI_CLIENT, checks.has_no_cache_marks()),
            rule(XAI_CLIENT, checks.writes_beside_calls("empty")),
        ),
        Shape(
            no_content="",
            thoughts=shapes.reasoning_content,
            usage=shapes.xai_usage,
            extra={"system_fingerprint": "fp_played"},
        ),
        lists={
            "/models": listed({"id": "grok-3-mini", "object": "model", "owned_by": "xai"}),
            "/language-models": {
                "models": [
                    {
                        "id": "grok-3-mini",
                        "aliases": ["grok-3-mini-latest", model],
                        "prompt_text_token_price": 3_000,
                        "cached_prompt_text_token_price": 750,
                        "completion_text_token_price": 5_000,
                    }
                ]
            },
        },
        cost_usd="0.0005",
    )


def _groq() -> Provider:
    model = "openai/gpt-oss-120b"
    return Provider(
        "groq",
        model,
        model,
        (
            *_common(GROQ_SDK, model),
            rule(GROQ_SDK, checks.has_only(GROQ_BODY)),
            rule(GROQ_REASONING, checks.has_only_in_messages(GROQ_MESSAGES)),
            rule(GROQ_SDK, checks.has_only_in_calls(CALL)),
            rule(GROQ_SDK, checks.limits_output(*checks.LIMITS)),
            rule(GROQ_SDK, checks.has_no_cache_marks()),
        ),
        Shape(
            no_content=shapes.ABSENT,
            thoughts=shapes.reasoning,
            call_id="fc_{:024}".format,
            usage=shapes.groq_usage,
            extra={"x_groq": {"id": "req_played"}},
        ),
        path="/openai/v1",
        lists={"/models": listed({"id": model, "active": True, "context_window": 131_072})},
        context_tokens=131_072,
        cached_tokens=0,
    )


def _zai() -> Provider:
    model = "glm-5.1"
    return Provider(
        "zai",
        model,
        model,
        (
            *_common(ZAI_SDK, model),
            rule(ZAI_SDK, checks.has_only(ZAI_BODY)),
            rule(ZAI_SDK, checks.limits_output("max_tokens")),
            rule(ZAI_THINKING, checks.repeats("reasoning_content")),
            rule(ZAI_SDK, checks.has_no_cache_marks()),
        ),
        Shape(
            no_content="",
            thoughts=shapes.reasoning_content,
            on_call=shapes.index_of_call,
            extra={"request_id": "request-played"},
        ),
        path="/api/paas/v4",
    )


def _alibaba() -> Provider:
    model = "qwen3-max"
    return Provider(
        "alibaba",
        model,
        model,
        (
            *_common(ALIBABA_CLIENT, model),
            rule(ALIBABA_CLIENT, checks.has_only(ALIBABA_BODY)),
            rule(ALIBABA_CLIENT, checks.limits_output("max_tokens")),
            rule(ALIBABA_CONTENT, checks.writes_beside_calls("null", "empty")),
            rule(ALIBABA_PARTS, checks.has_text_content("tool", "assistant")),
            rule(ALIBABA_CLIENT, checks.has_at_most_marks(4)),
        ),
        Shape(
            no_content="",
            thoughts=shapes.reasoning_content,
            on_call=shapes.index_of_call,
        ),
        path="/compatible-mode/v1",
        lists={"/models": listed({"id": model, "object": "model", "owned_by": "system"})},
    )


def _litellm() -> Provider:
    model = "team-claude"
    info = {"max_input_tokens": 200_000, "max_output_tokens": 64_000}
    details = {
        "data": [{"model_name": model, "litellm_params": {"model": "a/b"}, "model_info": info}]
    }
    return Provider(
        "litellm",
        model,
        model,
        (
            *_common(LITELLM_UNKNOWN, model),
            rule(LITELLM_UNKNOWN, checks.has_only(OPENAI_BODY)),
            rule(LITELLM_UNKNOWN, checks.limits_output(*checks.LIMITS)),
        ),
        Shape(
            thoughts=shapes.thinking_blocks,
            call_id="toolu_{:024}".format,
            headers={
                "x-litellm-response-cost": "0.0005",
                "x-litellm-call-id": "call-played",
                "x-litellm-model-id": "model-played",
            },
        ),
        lists={
            "/models": listed({"id": model, "object": "model", "owned_by": "openai"}),
            "/model/info": details,
        },
        context_tokens=200_000,
        cost_usd="0.0005",
    )


def _llama_cpp() -> Provider:
    model = "qwen3.5"
    return Provider(
        "llama-cpp",
        model,
        model,
        (
            *_common(LLAMA_SERVER, None),
            rule(LLAMA_TYPES, checks.writes_beside_calls("empty", "absent")),
            rule(LLAMA_TYPES, checks.has_text_content("tool", "assistant")),
            rule(LLAMA_SERVER, checks.limits_output("max_tokens")),
        ),
        Shape(call_id="call__0_refinement_cmpl-{:08}".format, usage=shapes.plain_usage),
        lists={
            "/models": listed({"id": model, "object": "model", "owned_by": "me", "permissions": []})
        },
        cached_tokens=0,
    )


def _plain() -> Provider:
    """The strictest of all: OpenAI's first chat completions and nothing else."""
    model = "local-model"
    body = frozenset({"model", "messages", "tools", "tool_choice", "stream", "max_tokens"})
    return Provider(
        "plain",
        model,
        model,
        (
            *_common(OPENAI_SCHEMA, model),
            rule(OPENAI_UNKNOWN, checks.has_only(body)),
            rule(OPENAI_SCHEMA, checks.limits_output("max_tokens")),
            rule(OPENAI_SCHEMA, checks.has_only_in_calls(CALL)),
            rule(LLAMA_TYPES, checks.writes_beside_calls("empty")),
            rule(ALIBABA_PARTS, checks.has_text_content("user", "tool")),
            rule(OPENAI_SCHEMA, checks.has_no_empty_tools()),
        ),
        Shape(usage=shapes.plain_usage),
        lists={"/models": listed({"id": model, "object": "model", "max_model_len": 40_960})},
        context_tokens=40_960,
        cached_tokens=0,
    )


PROVIDERS = {
    provider.name: provider
    for provider in (
        *(_openrouter(), _openai(), _azure(), _anthropic(), _gemini(), _deepseek(), _moonshot()),
        *(_mistral(), _xai(), _groq(), _zai(), _alibaba(), _litellm(), _llama_cpp(), _plain()),
    )
}
