"""Text to token ids and back, and the chat template: what the model reads and what it is trained to write.

The merges are the `tokenizers` library's, the template is the folder's own Jinja text. Ids that were sampled are never
decoded and encoded again on the way to the loss; decoding is only for the checker and for people.
"""
import json
from pathlib import Path

from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer as Pieces

FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")


def read_json(path):
    """A JSON file's content; ValueError that names the file where it holds none."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as err:
        raise ValueError(f"{path} is not JSON ({str(err)[:80]}); fetch or build it again") from None


class Tokenizer:
    """One folder's tokenizer: `encode`, `decode`, `prompt`, `conversation`, `end_ids`, `pad_id`, `vocab_size`."""

    def __init__(self, folder):
        folder = Path(folder)
        for name in FILES:
            if not (folder / name).is_file():
                raise FileNotFoundError(f"{folder} has no {name}; a model folder needs {', '.join(FILES)} and model.safetensors")
        self.folder = folder
        try:
            self.pieces = Pieces.from_file(str(folder / "tokenizer.json"))
        except Exception as err:                                   # the library raises the bare class
            raise ValueError(f"{folder / 'tokenizer.json'} cannot be read ({str(err)[:80]}); fetch or build it again") from None
        settings, model = read_json(folder / "tokenizer_config.json"), read_json(folder / "config.json")
        beside = folder / "chat_template.jinja"                    # where newer transformers keep it
        if beside.is_file():
            settings["chat_template"] = beside.read_text(encoding="utf-8")
        if not isinstance(settings.get("chat_template"), str) or not settings["chat_template"]:
            raise ValueError(f"{folder / 'tokenizer_config.json'} has no chat_template; this library only trains chat models")
        env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        self._template = env.from_string(settings["chat_template"])
        text = lambda key: settings[key]["content"] if isinstance(settings.get(key), dict) else settings.get(key)
        self._names = {"bos_token": text("bos_token"), "eos_token": text("eos_token")}
        if "vocab_size" not in model:
            raise ValueError(f"{folder / 'config.json'} has no vocab_size")
        self.vocab_size = model["vocab_size"]
        ends = read_json(folder / "generation_config.json").get("eos_token_id") if (folder / "generation_config.json").is_file() else None
        ends = model.get("eos_token_id") if ends is None else ends
        if ends is None:
            raise ValueError(f"{folder} names no eos_token_id in generation_config.json or config.json: replies could never end")
        self.end_ids = tuple(ends) if isinstance(ends, list) else (ends,)
        pad = model.get("pad_token_id")
        self.pad_id = self.end_ids[0] if pad is None else pad
        if self.pieces.get_vocab_size() > self.vocab_size:
            raise ValueError(f"{folder}: tokenizer.json has {self.pieces.get_vocab_size()} pieces, config.json {self.vocab_size}")

    def encode(self, text):
        """ids of a text; special tokens written in it are read as such, none is added."""
        return self.pieces.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        """The text of ids without special tokens; no blank is tidied away, since the checker reads it."""
        return self.pieces.decode(list(ids), skip_special_tokens=True)

    def decode_reply(self, ids):
        """The text of a reply up to its first end token: what follows an end was never said."""
        ids = list(ids)
        stop = next((i for i, t in enumerate(ids) if t in self.end_ids), len(ids))
        return self.decode(ids[:stop])

    def render(self, messages, ask):
        """The chat template's text for messages; `ask` opens the assistant's turn."""
        return self._template.render(messages=messages, add_generation_prompt=ask, **self._names)

    def prompt(self, text):
        """ids of one user message, up to where the assistant begins to speak."""
        return self.encode(self.render([{"role": "user", "content": text}], True))

    def conversation(self, messages):
        """(ids, is_reply): a whole chat, and 1 at each assistant token, its end token included; nothing else is trained.

        Each turn is cut where the template opens the assistant's turn, so training reads exactly the prompt that
        sampling reads. Raises ValueError where the template does not extend its own prompt."""
        ids, is_reply, done = [], [], ""
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            asked, told = self.render(messages[:i], True), self.render(messages[:i + 1], False)
            if not (asked.startswith(done) and told.startswith(asked)):
                raise ValueError(f"the chat template of {self.folder} rewrites earlier turns; it cannot be trained turn by turn")
            head, reply = self.encode(asked[len(done):]), self.encode(told[len(asked):])
            stop = next((j for j, t in enumerate(reply) if t in self.end_ids), None)
            if stop is None:
                raise ValueError(f"the chat template of {self.folder} closes no assistant turn with one of the end ids {self.end_ids}")
            ids += head + reply
            is_reply += [0] * len(head) + [1] * (stop + 1) + [0] * (len(reply) - stop - 1)
            done = told
        return ids, is_reply
