"""The servers, as each is started: a simulated model, LiteLLM's proxy, and two of llama.cpp."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench import playing
from refine.llm import rehearsal
from tests.real_providers.processes import free_port, running

INSTALLED = Path(".providers")
TINY_MODEL = "tiny"
CONTEXT_TOKENS, SMALL_CONTEXT_TOKENS = 16_384, 8_192
# LiteLLM wants a key that begins like this; the others take any.
KEY = "sk-any"

_PYTHON = str(INSTALLED / "bin" / "python")
_BUILT = (INSTALLED / "build" / "bin").resolve()
_HERE = Path(__file__).parent

# What the simulated model may be asked with: a part of what OpenAI's document lists.
_KNOWN_FIELDS = frozenset(
    ("model", "messages", "tools", "tool_choice", "stream", "max_tokens", "max_completion_tokens")
)

# By the name of a server and the size of its model's context.
Urls = dict[tuple[str, int], str]


@contextmanager
def all_running(folder: Path) -> Iterator[Urls]:
    """Run every server until the block ends; yield their URLs, each with ``/v1``."""
    model = make_tiny_model(folder)
    urls: Urls = {}
    with ExitStack() as stack:
        for tokens in (CONTEXT_TOKENS, SMALL_CONTEXT_TOKENS):
            own = stack.enter_context(llama_server(folder, model, tokens))
            python = stack.enter_context(llama_cpp_python(folder, model, tokens))
            urls |= {("llama-server", tokens): own, ("llama-cpp-python", tokens): python}
        upstream = {
            "PLAYED_URL": stack.enter_context(played()),
            "LLAMA_SERVER_URL": urls["llama-server", CONTEXT_TOKENS],
            "LLAMA_CPP_PYTHON_URL": urls["llama-cpp-python", CONTEXT_TOKENS],
        }
        urls["litellm", CONTEXT_TOKENS] = stack.enter_context(litellm(folder, upstream))
        yield urls


def make_tiny_model(folder: Path) -> Path:
    """Make the model that llama.cpp's servers run."""
    path = folder / f"{TINY_MODEL}.gguf"
    subprocess.run([_PYTHON, str(_HERE / "tiny_model.py"), str(path)], check=True)
    return path


@contextmanager
def played() -> Iterator[str]:
    """Play the careful model, and refuse what OpenAI would refuse; yield the URL."""
    with rehearsal.serving(_strictly) as url:
        yield url


@contextmanager
def litellm(folder: Path, upstream: dict[str, str]) -> Iterator[str]:
    """Run LiteLLM's proxy in front of the servers that its configuration names; yield its URL."""
    port = free_port()
    command = [
        *(str(INSTALLED / "bin" / "litellm"), "--config", str(_HERE / "litellm.yaml")),
        *("--host", "127.0.0.1", "--port", str(port), "--telemetry", "False"),
    ]
    variables = {**upstream, "PROXY_KEY": KEY}
    url = f"http://127.0.0.1:{port}"
    said = folder / "litellm.log"
    with running(command, f"{url}/health/liveliness", said, variables):
        yield f"{url}/v1"


@contextmanager
def llama_cpp_python(folder: Path, model: Path, context_tokens: int) -> Iterator[str]:
    """Run llama-cpp-python's server, with its format for tools; yield the URL.

    This format shows the model no results of tools, and quotation marks as in HTML; it can answer
    in words only where ``tool_choice`` is ``none``.
    https://github.com/abetlen/llama-cpp-python/blob/main/llama_cpp/llama_chat_format.py
    """
    port = free_port()
    command = [
        *(_PYTHON, "-m", "llama_cpp.server", "--model", str(model), "--model_alias", TINY_MODEL),
        *("--chat_format", "chatml-function-calling", "--n_ctx", str(context_tokens)),
        *("--host", "127.0.0.1", "--port", str(port), "--n_threads", "1", "--verbose", "False"),
    ]
    url = f"http://127.0.0.1:{port}/v1"
    said = folder / f"llama-cpp-python-{context_tokens}.log"
    with running(command, f"{url}/models", said, {"LLAMA_CPP_LIB_PATH": str(_BUILT)}):
        yield url


@contextmanager
def llama_server(folder: Path, model: Path, context_tokens: int) -> Iterator[str]:
    """Run llama.cpp's own server, which reads the model's template; yield the URL."""
    port = free_port()
    command = [
        *(str(_BUILT / "llama-server"), "--model", str(model), "--alias", TINY_MODEL, "--jinja"),
        *("--ctx-size", str(context_tokens), "--parallel", "1", "--threads", "1"),
        *("--host", "127.0.0.1", "--port", str(port), "--no-webui", "--offline"),
    ]
    url = f"http://127.0.0.1:{port}"
    with running(command, f"{url}/health", folder / f"llama-server-{context_tokens}.log"):
        yield f"{url}/v1"


def versions() -> str:
    """Return which versions of the servers are installed."""
    names = ("litellm", "llama_cpp_python")
    code = f"from importlib.metadata import version; print(*map(version, {names}))"
    done = subprocess.run([_PYTHON, "-c", code], check=True, capture_output=True, text=True)
    return ", ".join(f"{name} {it}" for name, it in zip(names, done.stdout.split(), strict=True))


def _strictly(body: dict[str, Any]) -> dict[str, Any]:
    unknown = sorted(body.keys() - _KNOWN_FIELDS)
    if unknown:
        return _refused(f"unknown: {', '.join(unknown)}")
    if any(not each.get("content") and not each.get("tool_calls") for each in body["messages"]):
        return _refused("a message with neither content nor tool calls")
    reply = playing.answer(body)
    reply["usage"].pop("cost")  # it is OpenRouter that names one
    return reply


def _refused(why: str) -> dict[str, Any]:
    return {"error": {"code": 400, "message": why, "type": "invalid_request_error"}}
