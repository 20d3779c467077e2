#!/usr/bin/env python3
"""Makes small.json and cases.json with the reference implementation.

  python3 make_fixture.py MODEL_DIR      # the folder with the model's tokenizer.json

Made with tokenizers 0.23.3. small.json is the model's tokenizer.json with a
smaller vocabulary, so that the tests need no download. It has what the cases need, and
what could mislead a greedy match. cases.json holds the ids by both files.
"""
import json
import sys
from pathlib import Path

from tokenizers import Tokenizer

HERE = Path(__file__).parent
CASES = [
    "", "   ", "Hello, World!", "naïve café résumé", "Ünïcödé ÅNGSTRÖM",
    "unaffable embeddings tokenization", "don't can't it's", "$100 + 50% = @home #tag",
    "中文字符 mixed 漢字 text", "日本語のカタカナ", "\U00020000 \U0002f800 \U0002b825",
    "tab\tnew\nline\r\u00a0nbsp\u3000ideographic", "\u2028line\u2029para \u1680ogham\u0085next",
    "zero\u200bwidth\u200djoin\ufeffbom", "control\x01char\x00nul\ufffdrepl", "soft\u00adhyphen",
    "private\ue000use", "undefined\u0378cp", "\u180e mongolian", "😀 emoji 👍🏽 test",
    "variation ✈️ ✈", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "[CLS] hello [SEP] [MASK] [PAD] [UNK]", "a[MASK]b", "[mask] [Mask]", "hello[SEP]world",
    "[CLS", "[]", "[ CLS ]", "[SEP][SEP]", "ﬁ ligature ﬀ", "İstanbul ISTANBUL ı",
    "ΑΣ ΟΔΥΣΣΕΥΣ ς", "K Å (kelvin angstrom)", "Straße GROẞ", "ǅ ǆ Ǆ",
    "a" * 100, "a" * 101, "x" * 50 + " " + "y" * 120, "é" * 100, "é" * 101,
    "supercalifragilisticexpialidocious", "1234567890 3.14159 1,000", "०१२", "Ⅳ ½ ² ™ ©", "ⓐ ① ㈱",
    "e\u0301 combining n\u0303", "a\u0300\u0301\u0302b", "\u1e9b\u0323", "e" + "\u0301" * 40 + "z",
    "“quotes” ‘single’ — dash – en … ellipsis", "foo_bar-baz/qux\\quux", "·•~`^|<>",
    "http://example.com/?q=1&r=2", "C++ C# .NET", "한국어 텍스트 각", "हिन्दी नमस्ते",
    "مرحبا بالعالم", "ﷺ", "עברית שָׁלוֹם", "привет мир ёлка й", "##ing ## #",
    "It was the best of times, it was the worst of times.", "word " * 200,
]


def load(path, limit=True):
    t = Tokenizer.from_file(str(path))
    t.no_padding()
    if not limit:
        t.no_truncation()
    return t


def cut_vocabulary(spec, full):
    vocab = spec["model"]["vocab"]
    keep = {a["content"] for a in spec["added_tokens"]}
    for text in CASES:
        keep.update(full.encode(text).tokens)
    keep.update(t for t in vocab if len(t.removeprefix("##")) == 1 and t.isascii())
    for token in list(keep):
        prefix = "##" if token.startswith("##") else ""
        body = token.removeprefix("##")
        keep.update(p for p in (prefix + body[:n] for n in range(1, len(body))) if p in vocab)
    order = sorted(keep, key=vocab.__getitem__)
    ids = {token: i for i, token in enumerate(order)}
    spec["model"]["vocab"] = ids
    for a in spec["added_tokens"]:
        a["id"] = ids[a["content"]]
    for name, s in spec["post_processor"]["special_tokens"].items():
        s["ids"] = [ids[name]]
    spec["padding"] = None


def main():
    source = Path(sys.argv[1]) / "tokenizer.json"
    spec = json.loads(source.read_text(encoding="utf-8"))
    cut_vocabulary(spec, load(source, limit=False))
    (HERE / "small.json").write_text(json.dumps(spec, ensure_ascii=True, indent=0) + "\n")
    small, full = load(HERE / "small.json"), load(source)
    cases = [{"text": t, "small": small.encode(t).ids, "full": full.encode(t).ids} for t in CASES]
    lines = ",\n".join(json.dumps(c, ensure_ascii=True) for c in cases)
    (HERE / "cases.json").write_text("[\n" + lines + "\n]\n")


main()
