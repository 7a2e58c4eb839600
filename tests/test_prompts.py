"""prompts: distinct, reproducible in any process, no digits, held-out topics really held out."""
import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from grpo_lib import prompts
from grpo_lib.config import ROOT

SHORT = re.compile(r"brief|\bshort\b|\b(one|two|a|first|corrected)( more| short)? (sentence|tip|fact|thing|reason|word|fun idea|title)|"
                   r"two sentences|two tips|two rhyming|a few|Name three|very short", re.I)


def test_distinct_and_none_of_the_fixed():
    chat = prompts.chat_prompts()
    assert len(chat) == len(set(chat)) == 5000, "chat prompts must be 5000 distinct messages"
    assert not set(chat) & set(prompts.FIXED), "a prompt shown in the notebooks was trained on"
    assert len(prompts.FIXED) == len(set(prompts.FIXED)) == 8


def test_same_in_every_process():
    code = "from grpo_lib.prompts import *; import hashlib, sys; assert 'torch' not in sys.modules; " \
           "print(hashlib.sha256(repr([chat_prompts(), unseen_prompts()]).encode()).hexdigest())"
    digests = {subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed},
                              capture_output=True, text=True, check=True).stdout for seed in ("0", "1", "77")}
    assert len(digests) == 1, "the prompts depend on the hash seed"


def test_seed_and_prefix():
    assert prompts.chat_prompts(300) == prompts.chat_prompts()[:300], "a smaller n must give the beginning of the list"
    assert prompts.chat_prompts(300, seed=1) != prompts.chat_prompts(300, seed=2), "the seed changes nothing"


def test_no_digits_and_tidy_text():
    for text in prompts.chat_prompts() + prompts.unseen_prompts():
        assert not re.search(r"\d", text), f"digit in {text!r}"
        assert text[-1] in '.?!"' and text[0].isupper() and "{" not in text and "  " not in text, f"untidy: {text!r}"
        assert not re.search(r"\ba [aeio]|\ban [^aeiou]|[.?!]{2}|\b(\w+) \1\b", text, re.I), f"slip in {text!r}"


def test_template_share_and_counts():
    names = [template for template, _ in prompts.chat_pairs()]
    assert max(Counter(names).values()) <= 0.03 * len(names), Counter(names).most_common(3)
    assert set(names) == set(prompts.TEMPLATES) and len(set(prompts.TEMPLATES)) >= 60
    assert len({topic for kind in prompts.TOPICS for topic in prompts.topics(kind)}) >= 400


def test_about_half_ask_for_short_answers():
    chat = prompts.chat_prompts()
    share = sum(bool(SHORT.search(text)) for text in chat) / len(chat)
    assert 0.4 <= share <= 0.65, f"{share:.0%} of the prompts ask for a short answer"


def test_unseen_prompts_use_held_out_topics_only():
    unseen = prompts.unseen_prompts()
    assert len(unseen) == len(set(unseen)) == 100
    everything = "\n".join(text for template in prompts.TEMPLATES for text in prompts.fillings(template)).lower()
    assert not set(map(str.lower, unseen)) & set(everything.split("\n")), "an unseen prompt can be drawn for training"
    for kind in set(prompts.TOPICS) - {"tail"}:
        for topic in prompts.topics(kind, held=True):
            for form in topic.lower().split("/"):
                assert not re.search(rf"(?<!\w){re.escape(form)}s?(?!\w)", everything), f"held-out {form!r} ({kind}) occurs"


def test_too_many_is_refused():
    with pytest.raises(ValueError, match="n=1000000"):
        prompts.chat_prompts(1_000_000)
