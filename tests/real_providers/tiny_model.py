"""Makes a model of one layer whose weights are set by hand, as a GGUF file.

It is a table: the last token says what may follow, and its two attention heads read two things in
all that came before:

    the stage      whether the session is open, and whether the model has deleted anything
    the newest     the highest id of a memory in the ledger

So it says YES to the consent question (where a server lets it only call the tool, it searches),
then deletes the newest memory that it was shown, and then completes. It does this only if a server
hands on the ledger, the brief and its earlier calls.

Runs in the environment of the servers, which has ``gguf``: ``python tiny_model.py FILE``.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import re
import sys
from collections import Counter
from pathlib import Path

import gguf
import numpy as np

NAME = "tiny"

_IDS = range(1, 128)
_WORDS = 700
_CONTEXT_TOKENS = 32_768
_HEADS, _HEAD_SIZE, _FEED_FORWARD = 2, 128, 32
_GAIN = 3.0
_STAGE_SCORE, _ID_SCORE = 30.0, 8.0

# What stands in prompts, as llama.cpp's templates write them.
_TURN = "<|im_start|>assistant\n"
_OPEN = "# Your refinement session"
# A format of llama-cpp-python escapes quotation marks as in HTML.
_SHOWN_ID = ('{"id":%d,', "{&#34;id&#34;:%d,")
_ESCAPED_DELETE = "&#34;delete&#34;, &#34;id&#34;: "

# What the model writes, in tokens of at most 32 bytes: llama-cpp-python leaves out longer ones.
_END = "<|im_end|>"
_YES = "YES."
_CALL, _CALL_ON = '<tool_call>\n{"name": ', '"refinement", "arguments": '
_NAMED_CALL, _NAMED_CALL_MADE = "functions.refinement:", "functions.refinement:\n"
_ACTION = '{"action": "'
_SEARCH = 'search", "query": "a"'
_DELETE = 'delete", "id": '
_COMPLETE = 'complete", "summary": "Tidied."'
_CLOSE_CALL, _CLOSE = "}}\n</tool_call>", "}"

# How much speaks for a token: after another one, and at a stage. Where a grammar forbids the
# first choice, the second is made.
_AFTER: dict[str, dict[str, float]] = {
    _TURN: {_YES: 10, _CALL: 7, _NAMED_CALL: 5},
    _YES: {_END: 10},
    _CALL: {_CALL_ON: 10},
    _CALL_ON: {_ACTION: 10},
    _NAMED_CALL_MADE: {_ACTION: 10},
    _ACTION: {_SEARCH: 8, _DELETE: 7, _COMPLETE: 6},
    _DELETE: {str(id_): 8 for id_ in _IDS},
    **{text: {_CLOSE_CALL: 10, _CLOSE: 9} for text in (_SEARCH, _COMPLETE)},
    **{str(id_): {_CLOSE_CALL: 10, _CLOSE: 9} for id_ in _IDS},
    _CLOSE_CALL: {_END: 10},
    _CLOSE: {_END: 10},
}
_AT_STAGE: dict[str, dict[str, float]] = {
    _OPEN: {_YES: -8, _CALL: 6, _DELETE: 4},
    _DELETE: {_YES: -8, _CALL: 6, _COMPLETE: 4},
}
_FOR_NEWEST = 6.0

# In the words of chatml, with tools as Hermes 2 Pro has them.
_TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- 'Your tools, as JSON, one a line:\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\\n</tools>\\nTo call a tool, write its name and arguments:\\n<tool_call>\\n' }}
{{- '{"name": NAME, "arguments": ARGUMENTS}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' }}
{%- if message.content %}{{- message.content }}{%- endif %}
{%- for call in message.tool_calls or [] %}
{%- if message.content or not loop.first %}{{- '\\n' }}{%- endif %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role != 'system' %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


class Vocabulary:
    """Tokens with their numbers: bytes, words of the prompts, and what the table speaks of."""

    def __init__(self, prompts: str) -> None:
        self.texts: list[str] = []
        self.kinds: list[gguf.TokenType] = []
        self._add("<unk>", gguf.TokenType.UNKNOWN)
        self._add("<s>", gguf.TokenType.CONTROL)
        self._add(_END, gguf.TokenType.CONTROL)
        for byte in range(256):
            self._add(f"<0x{byte:02X}>", gguf.TokenType.BYTE)
        self._add("\u2581", gguf.TokenType.NORMAL)  # a space
        # the same thing in other words
        self.means = {form % id_: f"shown {id_}" for form in _SHOWN_ID for id_ in _IDS}
        self.means[_ESCAPED_DELETE] = _DELETE
        for text in [*_written(), _OPEN, *self.means, *_words(prompts)]:
            if text not in self.texts:
                self._add(text, gguf.TokenType.USER_DEFINED)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, text: str) -> int:
        return self.texts.index(text)

    def _add(self, text: str, kind: gguf.TokenType) -> None:
        self.texts.append(text)
        self.kinds.append(kind)


class Weights:
    """The tensors. Each dimension of the stream between them stands for one thing."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        names = ["constant", "any", *_AFTER, _OPEN]
        names += [f"{what} {part}" for what in ("shown", "newest") for part in _IDS]
        names += [f"stage {stage}" for stage in _AT_STAGE]
        self._vocabulary = vocabulary
        self._at = {name: position for position, name in enumerate(dict.fromkeys(names))}
        self.width = len(self._at)
        # what normalization multiplies the two ones of each token with
        self._norm = np.sqrt(self.width / 2)

    def tensors(self) -> dict[str, np.ndarray]:
        """Return all tensors by their names in llama.cpp."""
        heads, width = _HEADS * _HEAD_SIZE, self.width
        query, key, value = (np.zeros((heads, width), np.float32) for _ in range(3))
        out = np.zeros((width, heads), np.float32)
        self._read_stage(query, key, value, out)
        self._read_newest(query, key, value, out)
        ones = np.ones(width, np.float32)
        return {
            "token_embd.weight": self._embedding(),
            "blk.0.attn_norm.weight": ones,
            "blk.0.attn_q.weight": query,
            "blk.0.attn_k.weight": key,
            "blk.0.attn_v.weight": value,
            "blk.0.attn_output.weight": out,
            "blk.0.ffn_norm.weight": ones,
            "blk.0.ffn_gate.weight": np.zeros((_FEED_FORWARD, width), np.float32),
            "blk.0.ffn_up.weight": np.zeros((_FEED_FORWARD, width), np.float32),
            "blk.0.ffn_down.weight": np.zeros((width, _FEED_FORWARD), np.float32),
            "output_norm.weight": ones,
            "output.weight": self._output(),
        }

    def _embedding(self) -> np.ndarray:
        table = np.zeros((len(self._vocabulary), self.width), np.float32)
        for token, text in enumerate(self._vocabulary.texts):
            name = self._vocabulary.means.get(text, text)
            table[token, self._at["constant"]] = 1
            table[token, self._at.get(name, self._at["any"])] = 1
        return table

    def _read_stage(
        self, query: np.ndarray, key: np.ndarray, value: np.ndarray, out: np.ndarray
    ) -> None:
        """Let the first head look for the latest stage that there was."""
        self._ask(query, 0)
        for number, stage in enumerate(_AT_STAGE):
            self._score(key, 0, stage, (number + 1) * _STAGE_SCORE)
            value[number, self._at[stage]] = 1 / self._norm
            out[self._at[f"stage {stage}"], number] = 1

    def _read_newest(
        self, query: np.ndarray, key: np.ndarray, value: np.ndarray, out: np.ndarray
    ) -> None:
        """Let the second head look for the highest id."""
        self._ask(query, _HEAD_SIZE)
        for number, id_ in enumerate(_IDS):
            self._score(key, _HEAD_SIZE, f"shown {id_}", id_ * _ID_SCORE)
            value[_HEAD_SIZE + number, self._at[f"shown {id_}"]] = 1 / self._norm
            out[self._at[f"newest {id_}"], _HEAD_SIZE + number] = 1

    def _ask(self, query: np.ndarray, row: int) -> None:
        query[row, self._at["constant"]] = 1 / self._norm

    def _score(self, key: np.ndarray, row: int, name: str, score: float) -> None:
        key[row, self._at[name]] = score * np.sqrt(_HEAD_SIZE) / self._norm

    def _output(self) -> np.ndarray:
        table = np.zeros((len(self._vocabulary), self.width), np.float32)
        stages = {f"stage {stage}": favoured for stage, favoured in _AT_STAGE.items()}
        newest = {f"newest {id_}": {str(id_): _FOR_NEWEST} for id_ in _IDS}
        for name, favoured in {**_AFTER, **stages, **newest}.items():
            for text, weight in favoured.items():
                table[self._vocabulary[text], self._at[name]] = _GAIN * weight
        return table


def write(path: Path, prompts: str) -> None:
    """Write the model; ``prompts`` are texts whose commonest words become tokens."""
    vocabulary = Vocabulary(prompts)
    weights = Weights(vocabulary)
    writer = gguf.GGUFWriter(path, "llama")
    _describe(writer, weights.width, len(vocabulary))
    _add_tokenizer(writer, vocabulary)
    for name, tensor in weights.tensors().items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: gguf.GGUFWriter, width: int, tokens: int) -> None:
    writer.add_name(NAME)
    writer.add_context_length(_CONTEXT_TOKENS)
    writer.add_vocab_size(tokens)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_FEED_FORWARD)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS)
    writer.add_key_length(_HEAD_SIZE)
    writer.add_value_length(_HEAD_SIZE)
    writer.add_layer_norm_rms_eps(1e-6)
    # positions as good as do not matter
    writer.add_rope_dimension_count(_HEAD_SIZE)
    writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(1e9)


def _add_tokenizer(writer: gguf.GGUFWriter, vocabulary: Vocabulary) -> None:
    writer.add_tokenizer_model("llama")
    writer.add_token_list(vocabulary.texts)
    writer.add_token_scores([0.0] * len(vocabulary))
    writer.add_token_types(vocabulary.kinds)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(vocabulary[_END])
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(_TEMPLATE)


def _written() -> list[str]:
    """Return the tokens of the table, each once."""
    followers = [text for favoured in _AFTER.values() for text in favoured]
    return list(dict.fromkeys([*_AFTER, *followers]))


def _words(prompts: str) -> list[str]:
    """Return the words, with the space before them, that save most bytes as one token."""
    counts = Counter(re.findall(r" [A-Za-z]{2,}", prompts))
    return sorted(counts, key=lambda word: (-counts[word] * len(word), word))[:_WORDS]


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path("docs/prompts.md").read_text(encoding="utf-8"))
