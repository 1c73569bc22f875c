"""Which names are those of one model, and whether a reply comes from the model that was asked."""

from refine.rules.model_names import in_words, is_same_model, names_one_model

SAME = """
openai/gpt-4o               OpenAI/GPT-4o
openai/gpt-4o               gpt-4o
gpt-4o                      openai/gpt-4o-2024-08-06
openai/gpt-4o               gpt-4o-2024-08-06
openai/gpt-5                openai/gpt-5-2025-08-07
anthropic/claude-sonnet-4   anthropic/claude-4-sonnet-20250522
anthropic/claude-sonnet-4.5 anthropic/claude-4.5-sonnet-20250929
anthropic/claude-sonnet-4   claude-sonnet-4@20250514
anthropic/claude-3.5-sonnet claude-3-5-sonnet-20241022
qwen/qwen3-8b               qwen/qwen3-8b-04-28
cohere/command-r-08-2024    cohere/command-r-08-2024
deepseek/deepseek-r1:free   deepseek/deepseek-r1
deepseek/deepseek-r1        deepseek/deepseek-r1:free
openai/gpt-4o-2024-08-06    gpt-4o-2024-08-06
openai/gpt-4                openai/gpt-4-0613
mistralai/mistral-large     mistralai/mistral-large-2407
qwen2.5:72b                 qwen2.5:72b
rehearsal/wren              rehearsal/wren
m                           author/m
author/m                    m
"""
OTHER = """
openai/gpt-4o                openai/gpt-4o-mini
openai/gpt-4o                openai/gpt-4o-mini-2024-07-18
openai/gpt-4o-mini           openai/gpt-4o
openai/gpt-4.1               openai/gpt-4
openai/gpt-4o                other/gpt-4o
anthropic/claude-sonnet-4    anthropic/claude-opus-4
anthropic/claude-sonnet-4    anthropic/claude-4.5-sonnet-20250929
meta-llama/llama-3-8b        meta-llama/llama-3-70b
cohere/command-r             cohere/command-r-08-2024
mistralai/mistral-large-2407 mistralai/mistral-large-2411
mistralai/mistral-large      mistralai/mistral-large-20-99
qwen2.5:72b                  qwen2.5:0.5b
llama3.2:1b                  llama3.2:3b
openai/gpt-4.5               openai/gpt-5.4
openai/gpt-4-0613            openai/gpt-4-1106-preview
openai/gpt-4o                20240806
openai/gpt-4o-2024-08-06     openai/gpt-4o-2024-11-20
openai/gpt-4o-2024-08-06     openai/gpt-4o
openai/gpt-4o-2024-08-06     gpt-4o-20240807
qwen/qwen3-8b-04-28          qwen/qwen3-8b
qwen/qwen3-8b-04-28          qwen/qwen3-8b-04-29
"""


# Names of one model, at OpenRouter.
ONE = [
    "openai/gpt-4o-2024-08-06",
    "meta-llama/llama-3.1-8b-instruct",
    "deepseek/deepseek-r1:free",
    *(f"author/model:{each}" for each in ("nitro", "floor", "extended", "exacto", "thinking")),
]
# Names of other servers, which OpenRouter has not.
ELSEWHERE = ["llama3:8b", "gpt-4o", "hf.co/author/Llama-3.1-8B:Q4_K_M", "openrouter/author/model"]
# Names of OpenRouter at which others than one model read what is sent.
SEVERAL = [
    *("author/model:online", "author/model:free:online", "author/model:ONLINE", "model:online"),
    *("author/model:batch", "author/model:nitro:batch", "openrouter/auto", "OpenRouter/Auto"),
    *("openrouter/pareto-code:nitro", "openrouter/openrouter/auto", "switchpoint/router"),
    *("~author/model-latest", "@preset/mine", "author/model@preset/mine", "openrouter/"),
    "author/model\n:online",
    "author/mod\u0435l",  # a Cyrillic letter
]


def test_of_openrouters_names_only_a_model_and_its_harmless_variants_name_one_model():
    certain = {
        name for name in ONE + ELSEWHERE + SEVERAL if names_one_model(name, at_openrouter=True)
    }
    perhaps = {
        name for name in ONE + ELSEWHERE + SEVERAL if names_one_model(name, at_openrouter=False)
    }

    assert certain == set(ONE)
    assert perhaps == {*ONE, *ELSEWHERE}


def pairs(table: str) -> list[list[str]]:
    return [line.split() for line in table.strip().splitlines()]


def test_a_dated_or_canonical_name_is_the_same_model():
    assert [pair for pair in pairs(SAME) if not is_same_model(*pair)] == []
    assert is_same_model("openai/gpt-4o", None)


def test_another_name_author_or_date_is_another_model():
    assert [pair for pair in [*pairs(OTHER), ["openai/gpt-4o", ""]] if is_same_model(*pair)] == []


def test_an_unreadable_name_is_not_repeated():
    assert in_words("openai/gpt-4o") == "openai/gpt-4o"
    for name in (None, "", "a\nb", "\x1b[31m"):
        assert in_words(name) == "a model with an unreadable name"
