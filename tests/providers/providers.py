"""Each provider as a strict player has it: what it refuses, and how it answers, as data.

The comments name the documents, schemas, source code or threads where a rule was read. Unless a
provider documents that it ignores unknown fields, the player refuses them; only fields that Refine
might send are listed.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Message = dict[str, Any]
ABSENT = object()
CACHED_TOKENS = 64


@dataclass(frozen=True)
class Step:
    """What a model says in one reply: words, calls of the tool, or both.

    A call is given by its arguments: a dict, or a string that is sent as it is. ``is_cut``: the
    reply ends at the output limit.
    """

    words: str | None = None
    calls: tuple[dict[str, Any] | str, ...] = ()
    is_cut: bool = False


def calls(*arguments: dict[str, Any] | str, words: str | None = None) -> Step:
    return Step(words, arguments)


# -- ways to think and to count --------------------------------------------------------------------


def reasoning_content(number: int) -> dict[str, Any]:
    """The second answer has none: the field is there, and empty."""
    return {"reasoning_content": "" if number == 2 else f"canary of thought {number}"}


def reasoning_details(number: int) -> dict[str, Any]:
    details = [
        {"type": "reasoning.text", "text": f"canary {number}", "signature": f"signed-{number}"},
        {"type": "reasoning.encrypted", "data": f"sealed-{number}", "id": f"thought-{number}"},
    ]
    return {"reasoning": f"canary {number}", "reasoning_details": details}


def thinking_blocks(number: int) -> dict[str, Any]:
    block = {"type": "thinking", "thinking": f"canary {number}", "signature": f"signed-{number}"}
    return {"reasoning_content": f"canary {number}", "thinking_blocks": [block]}


def thinking_chunks(words: str | None, number: int) -> Any:
    """Mistral's reasoning models think within the content; here, in every second answer."""
    if not words or number % 2:
        return words
    thought = [{"type": "text", "text": f"canary {number}"}]
    thinking = {"type": "thinking", "thinking": thought, "closed": True}
    return [thinking, {"type": "text", "text": words}]


def index_of_call(place: int, _number: int) -> dict[str, Any]:
    return {"index": place}


def thought_signature(place: int, number: int) -> dict[str, Any]:
    """Gemini signs the first of several calls."""
    signed = {"google": {"thought_signature": f"signed-{number}"}}
    return {"extra_content": signed} if place == 0 else {}


_CACHED = {"prompt_tokens_details": {"cached_tokens": CACHED_TOKENS, "audio_tokens": 0}}


# -- the providers ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Provider:
    """One provider: the model that is asked, what a request may be, and how it answers.

    answers_as        the name of the model in its answers; the asked one if not given
    takes             fields of the body besides the common ones; None: any
    limits            names of the output limit, one of which must be there
    message_fields    fields of the assistant's messages; None: any
    call_fields       fields of tool calls; None: any
    beside_calls      what may stand for the content beside tool calls: null, empty, absent
    says_something    whether an assistant's message must have words or calls
    text_roles        roles whose content is one text, not parts
    most_marks        how many cache marks messages may have
    repeats           fields that a message with calls must carry as they were said, and calls
    call_id_form      the form of ids of calls
    is_ordered        whether no user may follow a tool, and who spoke last matters

    lists             what it serves besides completions, by path
    no_content …      how it writes an answer: what stands beside calls, words, thoughts, ids, and
                      further fields of calls, of usage, of the answer, and headers
    """

    name: str
    model: str
    answers_as: str | None = None
    takes: frozenset[str] | None = None
    limits: tuple[str, ...] = ("max_tokens", "max_completion_tokens")
    message_fields: frozenset[str] | None = None
    call_fields: frozenset[str] | None = None
    beside_calls: tuple[str, ...] = ("null", "empty", "absent")
    says_something: bool = False
    text_roles: tuple[str, ...] = ()
    most_marks: int = 0
    repeats: tuple[str, ...] = ()
    call_id_form: str = ".+"
    is_ordered: bool = False

    path: str = "/v1"
    lists: Mapping[str, Any] = field(default_factory=dict)
    context_tokens: int | None = None
    cost_usd: str | None = None
    no_content: Any = None
    content: Callable[[str | None, int], Any] = lambda words, _number: words
    thoughts: Callable[[int], dict[str, Any]] = lambda _number: {}
    call_id: Callable[[int], str] = "call_{:08}".format
    on_call: Callable[[int, int], dict[str, Any]] = lambda _place, _number: {}
    usage: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def cached_tokens(self) -> int:
        """How much of the prompt each answer says came from a cache."""
        return CACHED_TOKENS if str(CACHED_TOKENS) in json.dumps(self.usage) else 0

    def message(self, step: Step, number: int, tool: str) -> Message:
        """Return the assistant's message for a step; ``number`` counts answers from 1."""
        message: Message = {"role": "assistant", **self.thoughts(number)}
        content = self.content(step.words, number)
        if content is None and step.calls:
            content = self.no_content
        if content is not ABSENT:
            message["content"] = content
        for place, given in enumerate(step.calls):
            arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            call = {
                "id": self.call_id(10 * number + place),
                "type": "function",
                "function": {"name": tool, "arguments": arguments},
                **self.on_call(place, number),
            }
            message.setdefault("tool_calls", []).append(call)
        return message

    def answer(self, message: Message, number: int, *, is_cut: bool) -> dict[str, Any]:
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        counted = {"prompt_tokens": 1_000 + number, "completion_tokens": 20}
        return {
            "id": f"gen-{number}",
            "object": "chat.completion",
            "created": 1_780_000_000 + number,
            "model": self.answers_as or self.model,
            "choices": [
                {"index": 0, "finish_reason": "length" if is_cut else reason, "message": message}
            ],
            "usage": {**counted, "total_tokens": 1_020 + number, **self.usage},
            **self.extra,
        }


def listed(id_: str, **entry: Any) -> dict[str, Any]:
    """Return the list of models, with one entry."""
    return {"/models": {"object": "list", "data": [{"id": id_, "object": "model", **entry}]}}


def only(*names: str) -> frozenset[str]:
    return frozenset(names)


OPENAI_CALL = only("id", "type", "function")
OPENAI_MESSAGE = only(
    *("role", "content", "name", "refusal", "audio", "tool_calls", "function_call")
)

# https://github.com/openai/openai-openapi/blob/f85dbe2/openapi.yaml
# https://github.com/microsoft/clarity-agent/issues/59 (max_tokens)
# https://github.com/davidmigloz/langchain_dart/issues/712 (unknown fields)
_OPENAI = Provider(
    "openai",
    "gpt-5.1",
    "gpt-5.1-2025-11-13",
    takes=only("prompt_cache_key", "user"),
    limits=("max_completion_tokens",),
    message_fields=OPENAI_MESSAGE,
    call_fields=OPENAI_CALL,
    beside_calls=("null", "empty"),
    lists=listed("gpt-5.1", owned_by="openai"),
    usage=_CACHED,
    extra={"service_tier": "default", "system_fingerprint": None},
)

_PROVIDERS = (
    # https://github.com/OpenRouterTeam/docs/blob/c26125a/openapi/openapi.yaml
    # https://openrouter.ai/docs/guides/best-practices/reasoning-tokens
    Provider(
        "openrouter",
        "anthropic/claude-sonnet-4.5",
        "anthropic/claude-4.5-sonnet-20250929",
        takes=only("cache_control", "plugins", "provider", "session_id", "user"),
        most_marks=4,
        repeats=("reasoning_details",),
        path="/api/v1",
        lists=listed(
            "anthropic/claude-sonnet-4.5",
            canonical_slug="anthropic/claude-4.5-sonnet-20250929",
            context_length=1_000_000,
            top_provider={"context_length": 1_000_000, "max_completion_tokens": 64_000},
            supported_parameters=["tools", "tool_choice", "max_completion_tokens"],
            pricing={"prompt": "0.000003", "completion": "0.000015"},
        ),
        context_tokens=1_000_000,
        cost_usd="0.0005",
        thoughts=reasoning_details,
        call_id="toolu_{:024}".format,
        usage={
            **_CACHED,
            "cost": 0.0005,
            "cost_details": {"upstream_inference_cost": None},
            "is_byok": False,
        },
        extra={"provider": "Anthropic", "openrouter_metadata": {"pipeline": []}},
    ),
    _OPENAI,
    # https://learn.microsoft.com/azure/ai-services/openai/api-version-deprecation
    # https://github.com/openinterpreter/openinterpreter/issues/115 (content beside calls)
    # https://github.com/anomalyco/opencode/issues/37964 (max_tokens)
    replace(
        _OPENAI,
        name="azure",
        model="gpt-4.1",
        answers_as="gpt-4.1-2025-04-14",
        path="/openai/v1",
        lists=listed("gpt-4.1-2025-04-14"),
        extra={"prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}]},
    ),
    # https://platform.claude.com/docs/en/api/openai-sdk
    # https://github.com/glowingjade/obsidian-smart-composer/pull/156 (empty messages)
    # https://github.com/anthropics/anthropic-sdk-python/issues/461 (empty text)
    Provider(
        "anthropic",
        "claude-sonnet-4-5",
        "claude-sonnet-4-5-20250929",
        beside_calls=("null", "absent"),
        says_something=True,
        lists=listed("claude-sonnet-4-5-20250929", max_input_tokens=200_000, max_tokens=64_000),
        no_content="",
        call_id="toolu_{:024}".format,
        usage={"prompt_tokens_details": None, "completion_tokens_details": None},
        headers={"x-should-retry": "false"},
    ),
    # https://ai.google.dev/gemini-api/docs/openai
    # https://discuss.ai.google.dev/t/109823 (signatures of thoughts)
    # https://github.com/liliMozi/openhanako/issues/394 (unknown fields)
    Provider(
        "gemini",
        "gemini-3-pro-preview",
        takes=only("extra_body"),
        repeats=("extra_content",),
        path="/v1beta/openai",
        lists=listed("models/gemini-3-pro-preview", owned_by="google"),
        no_content=ABSENT,
        call_id="function-call-{:016}".format,
        on_call=thought_signature,
        usage=_CACHED,
    ),
    # https://api-docs.deepseek.com/guides/thinking_mode.md
    # https://github.com/deepseek-ai/deepseek-harness/discussions/739 (empty thoughts)
    Provider(
        "deepseek",
        "deepseek-v4-pro",
        limits=("max_tokens",),
        repeats=("reasoning_content",),
        lists=listed("deepseek-v4-pro", owned_by="deepseek"),
        no_content="",
        thoughts=reasoning_content,
        call_id="call_00_{:024}".format,
        on_call=index_of_call,
        usage={"prompt_cache_hit_tokens": CACHED_TOKENS, "prompt_cache_miss_tokens": 900},
        extra={"system_fingerprint": "fp_played"},
    ),
    # https://github.com/MoonshotAI/kimi-cli/tree/4a550eff/packages/kosong
    # https://github.com/AstrBotDevs/AstrBot/pull/7202 (empty messages)
    # https://github.com/continuedev/continue/issues/11600 (missing thoughts)
    Provider(
        "moonshot",
        "kimi-k2.6",
        takes=only("prompt_cache_key", "thinking", "user"),
        says_something=True,
        repeats=("reasoning_content",),
        lists=listed("kimi-k2.6", context_length=262_144, supports_reasoning=True),
        context_tokens=262_144,
        thoughts=reasoning_content,
        call_id="refinement:{}".format,
        usage={"cached_tokens": CACHED_TOKENS},
    ),
    # https://github.com/mistralai/platform-docs-public/blob/222f4ba9/openapi.yaml
    # https://github.com/charmbracelet/crush/issues/1590 (thoughts)
    # https://github.com/zed-industries/zed/issues/53034 (ids of calls)
    # https://github.com/BerriAI/litellm/issues/6323 (order of roles)
    # https://github.com/mistralai/mistral-common/blob/bc022b9 (the last message)
    Provider(
        "mistral",
        "mistral-medium-latest",
        takes=only("prompt_cache_key"),
        limits=("max_tokens",),
        message_fields=only("role", "content", "tool_calls", "prefix"),
        call_fields=OPENAI_CALL | {"index"},
        says_something=True,
        call_id_form="[A-Za-z0-9]{9}",
        is_ordered=True,
        lists=listed(
            "mistral-medium-2604",
            aliases=["mistral-medium-latest", "mistral-medium"],
            max_context_length=131_072,
            capabilities={"completion_chat": True, "function_calling": True},
        ),
        context_tokens=131_072,
        no_content="",
        content=thinking_chunks,
        call_id="Call{:05}".format,
        on_call=index_of_call,
        usage=_CACHED,
    ),
    # https://raw.githubusercontent.com/api-evangelist/xai/refs/heads/main/openapi/
    # https://github.com/vercel/ai/tree/ed857f50f1/packages/xai/src
    Provider(
        "xai",
        "grok-3-mini-beta",
        "grok-3-mini",
        takes=only("search_parameters", "user"),
        beside_calls=("empty",),
        lists={
            **listed("grok-3-mini", owned_by="xai"),
            "/language-models": {
                "models": [
                    {"id": "grok-3-mini", "aliases": ["grok-3-mini-latest", "grok-3-mini-beta"]}
                ]
            },
        },
        cost_usd="0.0005",
        no_content="",
        thoughts=reasoning_content,
        usage={**_CACHED, "num_sources_used": 0, "cost_in_usd_ticks": 5_000_000},
        extra={"system_fingerprint": "fp_played"},
    ),
    # https://github.com/groq/groq-python/tree/9620fde/src/groq/types/chat
    # https://github.com/AstrBotDevs/AstrBot/issues/5946 (thoughts)
    Provider(
        "groq",
        "openai/gpt-oss-120b",
        takes=only("reasoning_effort", "user"),
        message_fields=only(
            *("role", "content", "name", "reasoning", "tool_calls", "function_call")
        ),
        call_fields=OPENAI_CALL,
        path="/openai/v1",
        lists=listed("openai/gpt-oss-120b", active=True, context_window=131_072),
        context_tokens=131_072,
        no_content=ABSENT,
        thoughts=lambda number: {"reasoning": f"canary of thought {number}"},
        call_id="fc_{:024}".format,
        usage={"queue_time": 0.01, "total_time": 0.5},
        extra={"x_groq": {"id": "req_played"}},
    ),
    # https://docs.z.ai/guides/capabilities/thinking-mode, https://github.com/zai-org/z-ai-sdk-python
    Provider(
        "zai",
        "glm-5.1",
        takes=only("thinking", "user_id"),
        limits=("max_tokens",),
        repeats=("reasoning_content",),
        path="/api/paas/v4",
        no_content="",
        thoughts=reasoning_content,
        on_call=index_of_call,
        usage=_CACHED,
        extra={"request_id": "request-played"},
    ),
    # https://github.com/QwenLM/qwen-code/issues/5265 (content beside calls)
    # https://github.com/can1357/oh-my-pi/issues/1859 (content in parts)
    # https://github.com/vercel/ai/tree/ed857f50f1/packages/alibaba/src
    Provider(
        "alibaba",
        "qwen3-max",
        takes=only("enable_thinking", "user"),
        limits=("max_tokens",),
        beside_calls=("null", "empty"),
        text_roles=("tool", "assistant"),
        most_marks=4,
        path="/compatible-mode/v1",
        lists=listed("qwen3-max", owned_by="system"),
        no_content="",
        thoughts=reasoning_content,
        on_call=index_of_call,
        usage=_CACHED,
    ),
    # https://github.com/BerriAI/litellm/issues/29618 (unknown fields)
    Provider(
        "litellm",
        "team-claude",
        takes=only("user"),
        lists={
            **listed("team-claude", owned_by="openai"),
            "/model/info": {
                "data": [
                    {
                        "model_name": "team-claude",
                        "litellm_params": {"model": "a/b"},
                        "model_info": {"max_input_tokens": 200_000, "max_output_tokens": 64_000},
                    }
                ]
            },
        },
        context_tokens=200_000,
        cost_usd="0.0005",
        most_marks=4,
        thoughts=thinking_blocks,
        call_id="toolu_{:024}".format,
        usage=_CACHED,
        headers={"x-litellm-response-cost": "0.0005", "x-litellm-call-id": "call-played"},
    ),
    # https://github.com/abetlen/llama-cpp-python/tree/3691546f/llama_cpp
    Provider(
        "llama-cpp",
        "qwen3.5",
        limits=("max_tokens",),
        beside_calls=("empty", "absent"),
        text_roles=("tool", "assistant"),
        most_marks=4,
        lists=listed("qwen3.5", owned_by="me", permissions=[]),
        call_id="call__0_refinement_cmpl-{:08}".format,
    ),
    # The strictest of all: OpenAI's first chat completions and nothing else.
    Provider(
        "plain",
        "local-model",
        takes=only(),
        limits=("max_tokens",),
        call_fields=OPENAI_CALL,
        beside_calls=("empty",),
        text_roles=("user", "tool"),
        lists=listed("local-model", max_model_len=40_960),
        context_tokens=40_960,
    ),
)
PROVIDERS = {provider.name: provider for provider in _PROVIDERS}
