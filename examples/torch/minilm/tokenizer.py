"""BERT's WordPiece from a tokenizer.json, enough for uncased English models."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

# The ranges of the original BERT code; the fifth begins as in the tokenizers library.
IDEOGRAPHS = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f"
    "\U0002b740-\U0002b81f\U0002b920-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f]"
)


class Tokenizer:
    """Holds the vocabulary and rules of one file. ``encode`` may be called by any thread."""

    def __init__(self, path: str | Path) -> None:
        raw = json.loads(Path(path).read_text(encoding="utf-8"))
        model = raw["model"]
        if model["type"] != "WordPiece" or raw["normalizer"]["type"] != "BertNormalizer":
            raise ValueError(f"{path}: only WordPiece with BertNormalizer is supported")
        if not raw["normalizer"]["lowercase"]:
            raise ValueError(f"{path}: only uncased models are supported")
        self.vocabulary: dict[str, int] = model["vocab"]
        self.prefix: str = model["continuing_subword_prefix"]
        self.unknown = self.vocabulary[model["unk_token"]]
        self.max_chars: int = model["max_input_chars_per_word"]
        specials = {t["content"]: t["id"] for t in raw["added_tokens"] if t["special"]}
        self.specials = re.compile("(" + "|".join(map(re.escape, specials)) + ")")
        self.special_ids = specials
        self.limit: int = (raw["truncation"] or {}).get("max_length", 0)
        self.first, self.last = specials["[CLS]"], specials["[SEP]"]

    def encode(self, text: str) -> list[int]:
        """The ids of ``text`` between the model's special tokens, cut to the file's truncation length."""
        ids = [self.first]
        for part in self.specials.split(text):
            if part in self.special_ids:
                ids.append(self.special_ids[part])
            else:
                ids.extend(i for word in words(normalised(part)) for i in self.pieces(word))
        if self.limit:
            del ids[self.limit - 1 :]
        return [*ids, self.last]

    def pieces(self, word: str) -> list[int]:
        """The longest known pieces from left to right; a word that has none is one unknown token."""
        if len(word) > self.max_chars:
            return [self.unknown]
        ids: list[int] = []
        start = 0
        while start < len(word):
            prefix = self.prefix if start else ""
            for end in range(len(word), start, -1):
                piece = self.vocabulary.get(prefix + word[start:end])
                if piece is not None:
                    break
            else:
                return [self.unknown]
            ids.append(piece)
            start = end
        return ids


def normalised(text: str) -> str:
    """Clean, space out ideographs, strip accents, lower, as BertNormalizer does."""
    text = "".join(" " if c.isspace() else c for c in text if not dropped(c))
    text = IDEOGRAPHS.sub(r" \g<0> ", text)
    text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
    return "".join(c.lower() for c in text)  # one by one: no final sigma


def dropped(char: str) -> bool:
    """Nul, the replacement character and control characters that are not white space."""
    if char in "\t\n\r":
        return False
    return char in "\0\ufffd" or unicodedata.category(char) in ("Cc", "Cf", "Co")


def words(text: str) -> Iterator[str]:
    """Cut at white space, with every punctuation character a word of its own."""
    start = 0
    for at, char in enumerate(text):
        space, mark = char.isspace(), punctuation(char)
        if not space and not mark:
            continue
        if start < at:
            yield text[start:at]
        if mark:
            yield char
        start = at + 1
    if start < len(text):
        yield text[start:]


def punctuation(char: str) -> bool:
    """ASCII's symbols count as punctuation, as in BERT."""
    if char < "\x80":
        return "!" <= char <= "~" and not char.isalnum()
    return unicodedata.category(char).startswith("P")
