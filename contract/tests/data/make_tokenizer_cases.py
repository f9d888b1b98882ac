#!/usr/bin/env python3
"""Writes the cases of check_tokenizer.c: what the `tokenizers` package makes of varied texts and id sequences.

    pip install tokenizers==0.23.3
    python3 contract/tests/data/make_tokenizer_cases.py            # rewrites tokenizer/*.cases and the *.json it needs
    python3 contract/tests/data/make_tokenizer_cases.py --seed 7 --out DIR     # other texts, elsewhere

Run from the root of the repository.  The same seed gives the same bytes.

A .cases file is a list of records, little-endian:
    kind u8      'e' encode, 's' encode with special tokens, 'd' decode, 'k' decode without special tokens
    n_bytes u32, n_ids u32, bytes[n_bytes], ids u16[n_ids]
For 'e' and 's' the bytes are the input, possibly not UTF-8 (the package gets them with errors="replace"), and
the ids what came out; for 'd' and 'k' the ids are the input and the bytes what came out.
"""
import argparse
import json
import os
import random
import struct

from tokenizers import Tokenizer

BOOK = "oracle-goldens/models/book52-nvfp4/tokenizer.json"
HERE = "contract/tests/data/tokenizer"

SENTENCES = """It was the best of times, it was the worst of times.
"Oh! my dear," cried she, "what an unlucky day it has been for us all—and how we've laughed!"
Don't you think they'll say it's I'D, WE'VE, you're, she'll; o'clock and rock'n'roll?
In 1815, on the 18th of June, 67,000 men (or 68.5%) stood at 50°40′45″N 4°24′25″E.
The McDonald's iPhone costs $1,299.99 -- 3x more than an eBook in XMLHttpRequest's README.md.
HELLO World hELLO WoRLD camelCase PascalCase SCREAMING_SNAKE_CASE kebab-case snake_case
L'été dernier, où çà? À Noël, garçon — « naïve » œuvre, Ça va, ÉCOLE ÉlÈve.
Fünf süße Äpfel für Straße, STRASSE und GROẞE Übung; Ärger über Öl.
¿Dónde está el niño? ¡Aquí! Mañana comerá piña en El Ñandú.
Příliš žluťoučký kůň úpěl ďábelské ódy. Zażółć gęślą jaźń. Árvíztűrő tükörfúrógép.
Tiếng Việt: Đường đến trường thật ngắn; Nguyễn Ái Quốc ở Huế.
İstanbul'da ılık bir gün, IĞDIR ığdır. ǅ ǆ Ǆ ǈ ǋ ᾈ ᾳ
Съешь же ещё этих мягких французских булок, да выпей чаю. ЁЛКА ёлка
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ΣΊΣΥΦΟΣ σίσυφος
אָלֶף־בֵּית עִבְרִית שלום עולם 123
السَّلامُ عَلَيْكُم ١٢٣ مرحبا بالعالم
नमस्ते दुनिया, क्षत्रिय १२३ किताब
สวัสดีชาวโลก ๑๒๓ กำลัง
안녕하세요 세계 한국어 각
こんにちは世界。カタカナとひらがな、ﾊﾝｶｸ １２３ ＡＢＣ
我能吞下玻璃而不伤身体。繁體中文測試「引號」，標點！
ქართული ენა ᲥᲐᲠᲗᲣᲚᲘ հայերեն ՀԱՅԵՐԵՆ አማርኛ ᏣᎳᎩ ꮳꮃꭹ ⵜⴰⵎⴰⵣⵉⵖⵜ
x² + y³ = z₁₀ ½ ¾ Ⅷ ⅷ ① ⒈ ㊿ ∑∫√≤≥≠ ℝ ℵ₀ ᵃᵇᶜ ª º ʰ ʲ
for (int i = 0; i < n; i++) { a[i] += b[i] * 0x1F; /* ok */ } // done
def f(x: int) -> str:\n    return f"{x!r:>10}" if x else None  # ok\n\n\nclass A(B):\n\tpass
{"key": [1, 2.5e-10, null, true], "π": "\\u00e9\\n"}
<div class="a b" id='c'>&nbsp;<!-- c --></div><br/>
https://example.org/a/b?c=d&e=%20f#g mail@example.org C:\\Temp\\x.txt /usr/lib/x.so.1
SELECT * FROM t WHERE a <> 'b' AND c IN (1,2,3) ORDER BY d DESC;
#include <stdio.h>\r\n#define X(a, b) ((a) ## _ ## b)\r\nint main(void)\r\n{\r\n\treturn 0;\r\n}\r\n
$ git log --oneline -5 | grep -v '^[a-f0-9]\\{7\\}' && echo "$?"
a/b//c///\n/ \n //\r\n/// ... !!! ??? ;;; --- === *** ((())) [[[]]]
''' \"\"\" ``` ''s 's 't 're 'S 'LL 'ſ x'ſ 'K don’t it’s
""".splitlines()

EMOJI = ("😀 😂 ❤️ ❤ 👍🏽 👩‍👩‍👧‍👦 👨🏿‍🚀 🏳️‍🌈 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🇩🇪 🇺🇸🇫🇷 1️⃣ #️⃣ ☎︎ ☎️ 🧑‍🤝‍🧑 🫠 🛜 🪿 🫨 🙂‍↕️ ✂️ ⌚ 🀄 ㊗️ © ® ™️").split(" ")

SPACES = [chr(c) for c in [9, 10, 11, 12, 13, 32, 0x85, 0xa0, 0x1680, *range(0x2000, 0x200b), 0x2028, 0x2029, 0x202f,
                           0x205f, 0x3000]]
NO_SPACES = [chr(c) for c in [0x1c, 0x1d, 0x1e, 0x1f, 0x180e, 0x200b, 0x200c, 0x200d, 0x2060, 0xfeff, 0x00ad]]
MARKS = [chr(c) for c in [0x300, 0x301, 0x308, 0x323, 0x327, 0x345, 0x483, 0x489, 0x5b0, 0x64b, 0x93f, 0x94d, 0xe31,
                          0x1ab0, 0x1dc0, 0x20dd, 0x20e3, 0x3099, 0xfe0f, 0xfe20, 0x1d165, 0xe0101]]
CONTROLS = [chr(c) for c in [*range(0, 32), *range(127, 160), 0x200e, 0x200f, *range(0x202a, 0x202f),
                             *range(0x2066, 0x206a), 0xfff9, 0xfffa, 0xfffb, 0xe0001]]
BLOCKS = [(0x20, 0x7e), (0xa0, 0x17f), (0x180, 0x24f), (0x250, 0x36f), (0x370, 0x3ff), (0x400, 0x52f), (0x530, 0x5ff),
          (0x600, 0x6ff), (0x700, 0x8ff), (0x900, 0x97f), (0x980, 0xdff), (0xe00, 0xfff), (0x1000, 0x10ff),
          (0x1100, 0x11ff), (0x1200, 0x17ff), (0x1800, 0x1fff), (0x2000, 0x206f), (0x2070, 0x218f), (0x2190, 0x23ff),
          (0x2400, 0x27bf), (0x27c0, 0x2bff), (0x2c00, 0x2e7f), (0x2e80, 0x303f), (0x3040, 0x30ff), (0x3100, 0x33ff),
          (0x3400, 0x4dbf), (0x4e00, 0x9fff), (0xa000, 0xabff), (0xac00, 0xd7ff), (0xe000, 0xf8ff), (0xf900, 0xffff),
          (0x10000, 0x107ff), (0x10800, 0x10fff), (0x11000, 0x11fff), (0x12000, 0x16fff), (0x17000, 0x1bcff),
          (0x1bd00, 0x1d7ff), (0x1d800, 0x1efff), (0x1f000, 0x1faff), (0x1fb00, 0x1ffff), (0x20000, 0x2a6df),
          (0x2a6e0, 0x323af), (0x323b0, 0xdffff), (0xe0000, 0xe0fff), (0xf0000, 0x10ffff)]

# First and last of what Unicode 15.0, 15.1 and 16.0 added, by script and category: older tables take them for unassigned.
NEWER = """897 cf3 ece 1b4e 1b7f 1c89 1c8a 2427 2429 2ffc 31e4 31ef a7cb a7cc a7cd a7da a7db a7dc 105c0 105f3 10d40 10d4a 10d4e
10d4f 10d50 10d65 10d69 10d6e 10d6f 10d70 10d85 10d8e 10ec2 10efc 10efd 1123f 11241 11380 113b7 113b8 113bb 113c2 113ca
113d1 113d2 113d3 113d4 113e1 1171e 116d0 116e3 11b00 11bc0 11be1 11bf0 11f00 11f02 11f03 11f04 11f34 11f36 11f40 11f43
11f50 11f5a 1342f 13439 13440 13441 13447 13460 143fa 16100 1611e 1612a 16130 16d40 16d43 16d6b 16d6d 16d70 1aff0 1b132
1b155 18cff 1cc00 1ccf0 1cd00 1d2c0 1df25 1e030 1e08f 1e4d0 1e4eb 1e4ec 1e4f0 1e5d0 1e5ee 1e5f0 1e5f1 1e5ff 1f6dc 1f774
1f7d9 1f8b2 1fa75 1fbcb 2b739 2ebf0 2ee5d 31350 323af 323b0 10ffff fdd0 ffff""".split()

BROKEN = [b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xc2", b"\xc3\x28", b"\xe0\x80\x80", b"\xe0\xa0", b"\xe2\x82",
          b"\xe2\x28\xa1", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf0\x80\x80\x80", b"\xf0\x9f", b"\xf0\x9f\x98",
          b"\xf0\x28\x8c\xbc", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xfe", b"\xff",
          b"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", b"\xed\xa0\xbd\xed\xb8\x80"]


class Texts:
    """Varied texts, as bytes."""

    def __init__(self, seed, words, added):
        self.r = random.Random(seed)
        self.words = words
        self.added = added
        self.makers = [self.sentence, self.prose, self.random_block, self.mixed, self.spaces, self.emoji, self.digits,
                       self.marks, self.code, self.controls, self.broken, self.specials, self.cut, self.case, self.newer,
                       self.anything]

    def pick(self, items):
        return items[self.r.randrange(len(items))]

    def some(self, items, low, high, glue=""):
        return glue.join(self.pick(items) for _ in range(self.r.randint(low, high)))

    def char(self):
        first, last = self.pick(BLOCKS)
        c = self.r.randint(first, last)
        return chr(c) if not 0xd800 <= c < 0xe000 else "\ufffd"

    def sentence(self):
        return self.pick(SENTENCES).replace("\\n", "\n").replace("\\r", "\r").replace("\\t", "\t")

    def prose(self):
        return self.some(self.words, 2, 14) + self.pick(["", ".", "!\n", "?\r\n", ",", ";\n\n"])

    def random_block(self):
        first, last = self.pick(BLOCKS)
        chars = [chr(c) for c in (self.r.randint(first, last) for _ in range(self.r.randint(2, 14)))
                 if not 0xd800 <= c < 0xe000]
        return "".join(c + (" " if self.r.random() < 0.15 else "") for c in chars)

    def mixed(self):
        return "".join(self.char() for _ in range(self.r.randint(1, 16)))

    def spaces(self):
        parts = [self.some([" "], 0, 9), self.some(["\n"], 0, 5), self.some(["\t"], 0, 5), self.some(SPACES, 0, 6),
                 self.some(SPACES + NO_SPACES, 0, 6), self.some(self.words, 0, 3), self.pick(["a", "1", "!", "/", "", "é"])]
        self.r.shuffle(parts)
        return "".join(parts) + self.pick(["", " ", "\n", "  \n", "x"])

    def emoji(self):
        return self.some(EMOJI + [" ", "!", "a", "\n"], 1, 7)

    def digits(self):
        return self.some(list("0123456789") * 3 + list(".,+-eE ") + list("²½Ⅷ①１٣๓५𝟘🄀"), 1, 20)

    def marks(self):
        return self.some(MARKS + list("aeoAEOé한か1 -"), 2, 14)

    def code(self):
        return self.some(["    ", "\t", "if", "(", ")", "{", "}", ";", "\n", "==", "->", "::", "x", "_y", "0x1F", "\"s\"", "'",
                          "//", "/*", "*/", "#", "\\", "\r\n", "return ", "NULL", "std", "<", ">", "&&", "||", "[i]", "...",
                          "@", "$", "`", "~", "^", "%d", "myVar", "HTTPServer"], 3, 25)

    def controls(self):
        return self.some(CONTROLS + ["a", "B", " ", "1", "א", "ب", "."], 1, 12)

    def broken(self):
        parts = [self.pick(BROKEN) if self.r.random() < 0.6 else self.pick([b"a", b" ", b"\xc3\xa9", "日".encode(), "😀".encode()])
                 for _ in range(self.r.randint(1, 8))]
        return b"".join(parts)

    def specials(self):
        return self.some(self.added + self.added + [" ", "  ", "x", "\n", "<", "s>", "</", "word", "é", "_", "1"], 1, 9)

    def cut(self):
        text = (self.sentence() + self.some(EMOJI, 1, 2)).encode()
        start = self.r.randrange(len(text))
        return text[start:start + self.r.randint(1, 40)]

    def case(self):
        return self.some(list("abCDéÉßẞǅʰªº中ا̈") + [" ", "'s", "'LL", "-", "1"], 2, 20)

    def newer(self):
        c = chr(int(self.pick(NEWER), 16))
        return self.pick(["a%s", "A%sb", "%sa", "1%s1", " %s ", "%s\n", "!%s!", "a%sA%sa"]).replace("%s", c)

    def anything(self):
        a, b = (m() for m in (self.pick(self.makers[:-1]), self.pick(self.makers[:-1])))
        return b"".join(t if isinstance(t, bytes) else t.encode() for t in (a, b))

    def line(self, i):
        text = self.makers[i % len(self.makers)]()
        return text if isinstance(text, bytes) else text.encode()


def fixed_texts():
    """Once each: the empty text, every single byte, each newer character, long lines."""
    yield b""
    for c in range(256):
        yield bytes([c])
    for c in NEWER:
        yield ("a%sB1%sc %s" % ((chr(int(c, 16)),) * 3)).encode()
    for s in SENTENCES + EMOJI:
        yield s.encode()
    r = random.Random(1)
    yield b" " * 20000 + b"x"
    yield b" \n" * 4000 + b"\t" * 300
    yield b"\n" * 5000
    yield bytes(r.choice(b"etaoinshr") for _ in range(8000))
    yield bytes(r.choice(b"ETAOINSHR") for _ in range(2000))
    yield b"!?.-" * 1500
    yield "é̈中".encode() * 400
    yield b" ".join(s.encode() for s in SENTENCES * 2)


def id_sequences(t, seed, n):
    """Random ids, among them many that cut characters: byte tokens come from the vocabulary's low ids."""
    r = random.Random(seed)
    size = t.get_vocab_size()
    split = [i for i in range(size) if t.id_to_token(i) is not None and any(c >= "\u00a1" for c in t.id_to_token(i))]
    known = [i for i in range(size) if t.id_to_token(i) is not None]
    yield []
    for _ in range(n):
        yield [r.choice(split if r.random() < 0.7 else known) for _ in range(r.randint(1, 12))]
    for i in known:
        if i < 300:
            yield [i]


def write_cases(path, tokenizer_path, n_lines, n_ids, seed):
    t = Tokenizer.from_file(tokenizer_path)
    with open(tokenizer_path, encoding="utf-8") as f:
        content = json.load(f)
    for a in content["added_tokens"]:
        assert t.token_to_id(a["content"]) == a["id"], a
    words = [w.replace("Ġ", " ") for w in sorted(content["model"]["vocab"]) if w.isascii() or w[0] == "Ġ" and w[1:].isascii()]
    texts = Texts(seed, words, [a["content"] for a in content["added_tokens"]] or ["<s>"])
    records = []

    def add(kind, text, ids):
        records.append(struct.pack("<cII", kind, len(text), len(ids)) + text + struct.pack("<%dH" % len(ids), *ids))

    lines = list(fixed_texts()) if n_lines >= 1000 else [b""]
    lines += [texts.line(i) for i in range(n_lines - len(lines))]
    for i, line in enumerate(lines):
        special = i % 4 == 3 and content["post_processor"] is not None
        ids = t.encode(line.decode("utf-8", "replace"), add_special_tokens=special).ids
        add(b"s" if special else b"e", line, ids)
    for i, ids in enumerate(id_sequences(t, seed, n_ids)):
        skip = i % 3 == 2
        add(b"k" if skip else b"d", t.decode(ids, skip_special_tokens=skip).encode(), ids)
    with open(path, "wb") as f:
        f.write(b"".join(records))
    print("%s: %d lines, %d id sequences, %d bytes" % (path, len(lines), len(records) - len(lines), os.path.getsize(path)))


def long_word(n):
    """One word of n letters, made by the generator that check_tokenizer.c has too."""
    x, out = 1, bytearray()
    for _ in range(n):
        x = (x * 6364136223846793005 + 1442695040888963407) % 2 ** 64
        out.append(b"etaoinshrdlucmfw"[x >> 60])
    return bytes(out)


def fnv(ids):
    h = 14695981039346656037
    for i in ids:
        h = (h ^ i) * 1099511628211 % 2 ** 64
    return h


def byte_level(prefix=False, regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split_by(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def added(i, content, **flags):
    return {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": False, **flags}


def template(before, after):
    def special(name):
        return {"SpecialToken": {"id": name, "type_id": 0}}
    return {"type": "TemplateProcessing",
            "single": [special(b) for b, _ in before] + [{"Sequence": {"id": "A", "type_id": 0}}] + [special(a) for a, _ in after],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {n: {"id": n, "ids": i, "tokens": [n] * len(i)} for n, i in before + after}}


def small_tokenizers():
    """Three small tokenizers that use what the bundled model's does not: the first merges of its vocabulary."""
    with open(BOOK, encoding="utf-8") as f:
        book = json.load(f)
    book_vocab = sorted(book["model"]["vocab"], key=book["model"]["vocab"].get)
    merges = book["model"]["merges"][:150]
    texts = book_vocab[3:259] + [a + b for a, b in merges]

    def make(extra, string_merges, **changes):
        vocab = {w: i for i, w in enumerate(texts + extra)}
        model = {**book["model"], "vocab": vocab, "merges": [" ".join(m) for m in merges] if string_merges else merges,
                 **changes.pop("model", {})}
        return {**book, "model": model, **changes}

    n = len(texts)
    gpt2 = make(["<|endoftext|>"], True, pre_tokenizer=byte_level(prefix=True, regex=True), decoder=byte_level(),
                added_tokens=[added(n, "<|endoftext|>", special=True)], post_processor=byte_level(),
                model={"unk_token": "<|endoftext|>", "continuing_subword_prefix": "", "end_of_word_suffix": ""})
    m = n + 4
    llama3 = make(["Ġwonderful", "日", "æĹ¥", "ĠĠĠĠ"], False, decoder=byte_level(),
                  pre_tokenizer={"type": "Sequence", "pretokenizers": [split_by(
                      r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
                      r"\s*[\r\n]+|\s+(?!\S)|\s+"), byte_level()]},
                  added_tokens=[added(m, "<s>", special=True), added(m + 1, "</s>", special=True, normalized=True),
                                added(m + 2, "<|im start|>", lstrip=True), added(m + 3, "<|im start|>x", rstrip=True),
                                added(m + 4, "word", single_word=True), added(texts.index("é"), "é"),
                                added(m + 5, "日本", normalized=True), added(m + 6, "<|im"),
                                added(m + 7, "wordy", normalized=True, single_word=True),
                                added(m + 8, "<pad>", lstrip=True, rstrip=True, special=True), added(m + 9, " <pad"),
                                added(m + 10, "x<s>", normalized=True)],
                  post_processor={"type": "Sequence", "processors": [byte_level(), template([("<s>", [m])], [("</s>", [m + 1, m])])]},
                  model={"ignore_merges": True})
    splits = make([], False, decoder=byte_level(), added_tokens=[], post_processor=template([("!", [0])], []),
                  pre_tokenizer={"type": "Sequence", "pretokenizers": [
                      split_by(r"\p{N}{1,3}|[^\s\p{L}\p{N}\-a-c_]+?"),
                      split_by(r"(?>[\p{Lu}\p{Lt}]+)\p{Ll}*+|\s+(?=\S)|[A-Fx\-]+|\d|\P{L}\S?|(\t|\r\n){2,}"),
                      byte_level(prefix=True)]})
    return {"gpt2": gpt2, "llama3": llama3, "splits": splits}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=52)
    p.add_argument("--lines", type=int, default=2400)
    p.add_argument("--out", default=HERE)
    args = p.parse_args()
    write_cases(os.path.join(args.out, "book52.cases"), BOOK, args.lines, args.lines // 4, args.seed)
    for name, content in small_tokenizers().items():
        path = os.path.join(args.out, name + ".json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(content, f, ensure_ascii=False, separators=(",", ":"))
            f.write("\n")
        write_cases(os.path.join(args.out, name + ".cases"), path, args.lines // 5, args.lines // 20, args.seed + 1)
    ids = Tokenizer.from_file(BOOK).encode(long_word(1 << 20).decode(), add_special_tokens=False).ids
    print("one word of %d letters: %d ids, FNV-1a 0x%016xu" % (1 << 20, len(ids), fnv(ids)))


if __name__ == "__main__":
    main()
