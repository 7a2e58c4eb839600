"""Text and ids: decoding inverts encoding, and masks train each reply with its one end token (fault log, 1, 3, 5)."""

import json
import re
import shutil

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from grpo_lib.task import direct, heldout, worked
from grpo_lib.tokenizer import Tokenizer

SPECIAL = ("<|pad|>", "<|begin|>", "<|user|>", "<|assistant|>", "<|end|>", "<|stop|>")
PAD, BEGIN, USER, ASSISTANT, END, STOP = range(6)
STRINGS = [
    "",
    " ",
    "  ",
    "\n",
    "The answer is 42 .",
    "The answer is 42.",
    " 42",
    "42 ",
    "a  b",
    "don't , stop !",
    "\u00e9\u0301",
    "\u4e2d\u6587",
    "\U0001f600 ok",
    "\ufb01",
    "\uff14\uff12",
    "\u0664\u0662",
    "\x00\x07",
    "tab\tand\r\nline",
    "<|nothing|>",
    "<s>",
    "</s>",
    "\ufeffx",
    "\u200b",
]


def chat(*contents):
    """Messages that alternate between user and assistant."""
    return [{"role": ("user", "assistant")[i % 2], "content": c} for i, c in enumerate(contents)]


@pytest.fixture
def variant(tokenizer_folder, tmp_path):
    """variant(file, key=value): the tokenizer of a copy of the folder with these keys changed; None removes one."""

    def make(name, **changes):
        folder = shutil.copytree(tokenizer_folder, tmp_path / "copy", dirs_exist_ok=True)
        data = json.loads((folder / name).read_text(encoding="utf-8")) | changes
        (folder / name).write_text(json.dumps({k: v for k, v in data.items() if v is not None}), encoding="utf-8")
        return Tokenizer(folder)

    return make


@pytest.mark.parametrize("text", STRINGS, ids=ascii)
def test_decoding_gives_the_text_back(text, tokenizer):
    assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text())
@example("<|begin|>").via("found by hypothesis: a special token written as text is read as one")
def test_decoding_gives_any_text_back_but_for_special_tokens(tokenizer, text):
    plain = re.sub("|".join(map(re.escape, SPECIAL)), "", text)
    assert tokenizer.decode(tokenizer.encode(text)) == plain


def test_decoding_gives_the_teachers_texts_back(tokenizer):
    for p in heldout("dev")[:100]:
        for text in (p.prompt, direct(p.a, p.b), worked(p.a, p.b)):
            assert tokenizer.decode(tokenizer.encode(text)) == text


def test_encoding_adds_nothing_and_reads_special_text(tokenizer):
    assert tokenizer.encode("") == [] and BEGIN not in tokenizer.encode("What is 42?")
    assert tokenizer.encode("<|end|>") == [END] and tokenizer.decode([BEGIN, *tokenizer.encode("42"), END, PAD]) == "42"


def test_sampled_pieces_are_not_what_encoding_their_text_gives(tokenizer):
    four, two, both = tokenizer.encode("4"), tokenizer.encode("2"), tokenizer.encode("42")
    assert (
        len(both) == 1 and tokenizer.decode(four + two) == "42" and four + two != both
    ), "the reason why ids are never encoded again"


def test_unknown_and_half_characters_do_not_crash(tokenizer):
    assert tokenizer.decode([319]) == "", "ids between the tokenizer's and the model's vocabulary have no text"
    half = tokenizer.encode("\u4e2d")[:1]
    assert "\ufffd" in tokenizer.decode(half)


def test_a_reply_ends_at_its_first_end_token(tokenizer):
    said, junk = tokenizer.encode("The answer is 42."), tokenizer.encode(" junk 7.")
    for end in (END, STOP):
        assert tokenizer.decode_reply(said + [end] + junk + [END]) == "The answer is 42."
    assert (
        tokenizer.decode_reply(said) == "The answer is 42."
        and tokenizer.decode_reply([]) == tokenizer.decode_reply([END]) == ""
    )
    assert (
        tokenizer.decode_reply(said + [PAD] + junk) == "The answer is 42. junk 7."
    ), "padding ids are not ends unless they are end ids"
    assert tokenizer.decode_reply(iter(said + [END])) == "The answer is 42."


# ---- conversations


def trained(ids, is_reply):
    return [t for t, r in zip(ids, is_reply) if r]


def test_one_turn_trains_the_reply_and_its_end_once(tokenizer):
    ids, is_reply = tokenizer.conversation(chat("What is 42?", "The answer is 42."))
    assert trained(ids, is_reply) == tokenizer.encode("The answer is 42.") + [
        END
    ], "the reply and its end token, nothing else"
    assert ids == tokenizer.encode("<|begin|><|user|>What is 42?<|end|>\n<|assistant|>The answer is 42.<|end|>\n")
    assert len(ids) == len(is_reply) and set(is_reply) == {0, 1}


def test_the_prompt_that_is_sampled_is_the_head_of_what_is_trained(tokenizer):
    for text in ("What is 42?", " leading", "trailing ", "", "4\n\n2", "\u4e2d\u6587"):
        ids, is_reply = tokenizer.conversation(chat(text, "42"))
        prompt = tokenizer.prompt(text)
        assert ids[: len(prompt)] == prompt and is_reply[: len(prompt) + 1] == [0] * len(prompt) + [1]
        assert prompt.count(BEGIN) == 1 and prompt[-1] == ASSISTANT


def test_every_assistant_turn_is_trained_and_no_other(tokenizer):
    ids, is_reply = tokenizer.conversation(chat("Hi 1", "one", "Hi 2", "two", "left hanging"))
    assert trained(ids, is_reply) == [*tokenizer.encode("one"), END, *tokenizer.encode("two"), END]
    assert ids.count(BEGIN) == 1 and "left hanging" not in tokenizer.decode(ids), "nothing after the last reply is kept"
    assert sum(is_reply) == len(tokenizer.encode("one")) + len(tokenizer.encode("two")) + 2
    second = tokenizer.encode(tokenizer.render(chat("Hi 1", "one", "Hi 2"), True))
    assert ids[: len(second)] == second, "the second turn is trained behind exactly what sampling would read"


def test_a_system_message_is_read_and_not_trained(tokenizer):
    ids, is_reply = tokenizer.conversation([{"role": "system", "content": "Be kind."}, *chat("Hi", "Ho")])
    assert trained(ids, is_reply) == tokenizer.encode("Ho") + [END] and "Be kind." in tokenizer.decode(ids)


def test_an_end_written_inside_a_reply_ends_what_is_trained(tokenizer):
    ids, is_reply = tokenizer.conversation(chat("Hi", "one<|end|>two"))
    assert trained(ids, is_reply) == tokenizer.encode("one") + [END]


def test_an_empty_reply_trains_its_end_alone_and_no_reply_trains_nothing(tokenizer):
    assert trained(*tokenizer.conversation(chat("Hi", ""))) == [END]
    assert tokenizer.conversation(chat("Hi")) == ([], [])


def test_padding_that_equals_the_end_changes_no_mask(tokenizer, variant):
    same = variant("config.json", pad_token_id=None)
    assert same.pad_id == END
    assert same.conversation(chat("Hi", "Ho")) == tokenizer.conversation(chat("Hi", "Ho"))
    assert variant("config.json", pad_token_id=0).pad_id == 0


def test_a_template_without_an_end_or_with_a_memory_is_refused(variant):
    with pytest.raises(ValueError, match="closes no assistant turn"):
        variant(
            "tokenizer_config.json",
            chat_template="{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
            "{% if add_generation_prompt %}assistant: {% endif %}",
        ).conversation(chat("Hi", "Ho"))
    with pytest.raises(ValueError, match="rewrites earlier turns"):
        variant(
            "tokenizer_config.json",
            chat_template="{{ messages | length }}{% for m in messages %}{{ m['content'] }}<|end|>{% endfor %}",
        ).conversation(chat("Hi", "Ho"))


# ---- what the folder says


def test_end_ids_come_from_generation_config_first(tokenizer, variant):
    assert tokenizer.end_ids == (END, STOP) and tokenizer.pad_id == PAD and tokenizer.vocab_size == 320
    assert variant("generation_config.json", eos_token_id=STOP).end_ids == (STOP,)
    assert variant("generation_config.json", eos_token_id=0).end_ids == (0,), "id 0 is an id"
    assert variant("generation_config.json", eos_token_id=None).end_ids == (END,), "else config.json says it"


def test_begin_and_end_names_reach_the_template(variant):
    for name in ("<|begin|>", {"content": "<|begin|>"}):
        tok = variant(
            "tokenizer_config.json",
            bos_token=name,
            chat_template="{{ bos_token }}{% for m in messages %}{{ m['content'] }}{{ eos_token }}{% endfor %}",
        )
        assert tok.prompt("42") == [BEGIN, *tok.encode("42"), END]


def test_a_template_cannot_reach_into_python(variant):
    tok = variant("tokenizer_config.json", chat_template="{{ messages.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(Exception, match="unsafe|undefined"):
        tok.prompt("x")


def test_transformers_reads_the_same_ids_from_the_folder(tokenizer, tokenizer_folder):
    from transformers import PreTrainedTokenizerFast

    theirs = PreTrainedTokenizerFast.from_pretrained(tokenizer_folder)
    for text in STRINGS:
        assert theirs.encode(text, add_special_tokens=False) == tokenizer.encode(text)
    messages = chat("What is 42?", "The answer is 42.")
    assert theirs.apply_chat_template(messages[:1], tokenize=False, add_generation_prompt=True) == tokenizer.render(
        messages[:1], True
    )
    assert theirs.apply_chat_template(messages, tokenize=False) == tokenizer.render(messages, False)


def test_a_template_kept_in_its_own_file_is_read_and_saved_along(tokenizer_folder, tmp_path):
    folder = tmp_path / "apart"
    shutil.copytree(tokenizer_folder, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    (folder / "chat_template.jinja").write_text(config.pop("chat_template"), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    assert Tokenizer(folder).prompt("hello") == Tokenizer(tokenizer_folder).prompt("hello")
