#!/usr/bin/env python3
"""usage: tools/check_token_models.py [--build BUILD] [--data DIR] [--models N] [--pieces N] [--seed N]

Compares the models of tokenizers (BPE, WordPiece, WordLevel, Unigram) with those of the tokenizers
library, and tiktoken's files with tiktoken: ids, spans in bytes, and which pieces are refused. The
models are N random ones of each kind, with all of their options, and the real ones of DIR (folders
gpt2, bert, t5, llama2, llama3 with the files of these models), if it is given. It needs
build/bench/token_models (make benches) and the packages tokenizers, tiktoken and, for llama2 and
t5, sentencepiece with protobuf."""
import argparse
import base64
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer, models

BYTES = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
SPELLING = {b: chr(b) for b in BYTES}
for n, b in enumerate(b for b in range(256) if b not in BYTES):
    SPELLING[b] = chr(256 + n)
MARK = "\u2581"


def spell(data):
    return "".join(SPELLING[b] for b in data)


class Checker:
    def __init__(self, args):
        self.program = os.path.join(args.build, "bench", "token_models")
        self.folder = tempfile.mkdtemp()
        self.random = random.Random(args.seed)
        self.failed = self.compared = 0

    def ours(self, arguments, pieces):
        path = os.path.join(self.folder, "pieces")
        with open(path, "wb") as f:
            for piece in pieces:
                f.write(struct.pack("<I", len(piece)) + piece)
        done = subprocess.run([self.program, *arguments, "--check", path], capture_output=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(arguments)}: {done.stderr.decode()}")
        return done.stdout.decode("utf-8", "replace").split("\n")[:-1]

    def compare(self, name, arguments, expected, pieces):
        """expected(piece) gives a list of (id, begin, end) or None for an error."""
        lines = self.ours(arguments, pieces)
        assert len(lines) == len(pieces), (name, len(lines), len(pieces))
        bad = 0
        for piece, line in zip(pieces, lines):
            want = expected(piece)
            if line.startswith("error: "):
                got = None
            else:
                got = [tuple(map(int, token.split(":"))) for token in line.split()]
            self.compared += 1
            if got != want:
                bad += 1
                if bad == 1:
                    print(f"{name}: {' '.join(arguments)}\n  piece {piece[:200]!r}")
                    print(f"  expected {str(want)[:300]}\n  found    {line[:300]}")
        self.failed += bad
        return bad

    def json_file(self, model):
        path = os.path.join(self.folder, "model.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(model, f, ensure_ascii=False)
        return path


def from_json(model):
    return Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
        "model": model})).model


def expected_text(model):
    def expected(piece):
        try:
            tokens = model.tokenize(piece.decode())
        except Exception:  # the library raises no other kind
            return None
        return [(t.id, min(t.offsets[0], len(piece)), min(t.offsets[1], len(piece)))
                for t in tokens]
    return expected


def expected_bytes(model):
    """For a model whose vocabulary spells bytes: spans in bytes of the piece."""
    def expected(piece):
        text = spell(piece)
        offsets = {}
        at = 0
        for i, c in enumerate(text):
            offsets[at] = i
            at += len(c.encode())
        offsets[at] = len(text)
        try:
            tokens = model.tokenize(text)
        except Exception:
            return None
        return [(t.id, offsets[t.offsets[0]], offsets[t.offsets[1]]) for t in tokens]
    return expected


# ---- pieces ----

HOSTILE = ["\u2581", " ", "\n", "\t", "\0", "\u00e9", "e\u0301", "\u4e2d", "\u6587", "\U0001f600",
           "\U0001f468\u200d\U0001f469", "\ufb01", "\u0130", "\uff0f", "<unk>", "</s>", "##", "<0x0A>",
           "'s", "'", "...", "---", "====", "1", "23", "\u00ad", "\ufffd", "\u0627\u0644", "\u0915\u094d"]


def random_pieces(r, count, alphabet, words):
    pieces = []
    for _ in range(count):
        kind = r.randrange(6)
        n = min(r.choice([1, 2, 3, 5, 8, 13, 30, 60, 120]), r.randrange(1, 121))
        if kind == 0:
            piece = "".join(r.choice(alphabet) for _ in range(n))
        elif kind == 1:
            piece = r.choice(alphabet) * n
        elif kind == 2:
            piece = "".join(r.choice(HOSTILE) for _ in range(n))
        elif kind == 3 and words:
            piece = r.choice(words)
        elif kind == 4 and words:
            piece = "".join(r.choice(words) for _ in range(min(n, 8)))
        else:
            piece = "".join(chr(r.choice([r.randrange(1, 0x250), r.randrange(1, 0xd800),
                                          r.randrange(0xe000, 0x110000)])) for _ in range(n))
        pieces.append(piece.encode())
    return pieces


# ---- random models ----

def random_bpe(r, alphabet, raw):
    prefix = r.choice([None, "", "##", "_"]) if not raw else None
    suffix = r.choice([None, None, "", "</w>"]) if not raw else None
    unk = r.choice([None, "<unk>", "<unk>", "<missing>"])
    vocab, merges = {}, []

    def add(token):
        return vocab.setdefault(token, len(vocab))

    if unk == "<unk>":
        add(unk)
    for c in alphabet:
        if r.random() < 0.9:
            add(c)
            if prefix and r.random() < 0.9:
                add(prefix + c)
            if suffix and r.random() < 0.9:
                add(c + suffix)
                if prefix:
                    add(prefix + c + suffix)
    if r.random() < 0.5 and not raw:
        for b in range(256):
            if r.random() < 0.95:
                add(f"<0x{b:02X}>")
    if raw and unk is None:  # the spans of other models are in no bytes of the piece
        for spelling in SPELLING.values():
            add(spelling)
    tokens = list(vocab)
    if raw:
        tokens = [t for t in tokens if t in alphabet]
    for _ in range(r.randrange(0, 60)):
        if not tokens:
            break
        a, b = r.choice(tokens), r.choice(tokens)
        if prefix and not b.startswith(prefix) and r.random() < 0.95:
            continue
        rest = b.encode()[len(prefix or ""):]
        if len(b) < len(prefix or "") or not rest or rest[0] & 0xC0 == 0x80:
            continue
        new = a + rest.decode()
        if len(new) > 24:
            continue
        add(new)
        tokens.append(new)
        merges.append([a, b])
    if r.random() < 0.3:
        r.shuffle(merges)
    return {"type": "BPE", "unk_token": unk, "continuing_subword_prefix": prefix,
            "end_of_word_suffix": suffix, "fuse_unk": r.random() < 0.5,
            "byte_fallback": not raw and r.random() < 0.5, "ignore_merges": r.random() < 0.3,
            "vocab": vocab,
            "merges": merges if r.random() < 0.5 or any(" " in x for m in merges for x in m)
            else [" ".join(m) for m in merges]}


def random_texts(r, alphabet, count):
    return ["".join(r.choice(alphabet) for _ in range(r.randrange(1, 7))) for _ in range(count)]


def random_unigram(r, alphabet):
    texts = ["<unk>"] + random_texts(r, alphabet, r.randrange(1, 80))
    texts += [c for c in alphabet if r.random() < 0.7]
    if r.random() < 0.5:
        texts += [f"<0x{b:02X}>" for b in range(256) if r.random() < 0.97]
    r.shuffle(texts)
    scale = r.choice([1, 10, 100])
    vocab = [[t, -r.randrange(0, 8) * scale / 4 if r.random() < 0.5 else -r.random() * scale]
             for t in texts]
    return {"type": "Unigram", "vocab": vocab, "byte_fallback": r.random() < 0.5,
            "unk_id": r.choice([None, texts.index("<unk>"), r.randrange(len(texts))])}


def random_wordpiece(r, alphabet):
    prefix = r.choice(["##", "##", "", "_"])
    vocab = {}
    for t in ["[UNK]", prefix, ""] + random_texts(r, alphabet, r.randrange(1, 60)) + \
            [prefix + t for t in random_texts(r, alphabet, r.randrange(1, 60))]:
        if t or r.random() < 0.5:
            vocab.setdefault(t, len(vocab))
    return {"type": "WordPiece", "vocab": vocab, "continuing_subword_prefix": prefix,
            "unk_token": r.choice(["[UNK]", "[UNK]", "[MISSING]"]),
            "max_input_chars_per_word": r.choice([0, 3, 10, 100, 100000])}


def random_wordlevel(r, alphabet):
    vocab = {t: i for i, t in enumerate(dict.fromkeys(["[UNK]"] + random_texts(r, alphabet, 60)))}
    return {"type": "WordLevel", "vocab": vocab, "unk_token": r.choice(["[UNK]", "[MISSING]"])}


def check_random(c, args):
    r = c.random
    alphabets = ["ab", "abc", "ab" + MARK, "abcd" + MARK + ".", "a\u00e9\u4e2d", "ab\U0001f600<>"]
    for kind in ("BPE", "BPE of bytes", "Unigram", "WordPiece", "WordLevel"):
        bad = 0
        for _ in range(args.models):
            alphabet = list(r.choice(alphabets))
            arguments = "json"
            if kind == "BPE":
                model = random_bpe(r, alphabet, False)
            elif kind == "BPE of bytes":
                model = random_bpe(r, [SPELLING[b] for b in r.sample(range(256), 4)] + ["a", "b"],
                                   True)
                alphabet = ["a", "b", " ", "\u00e9", "\n"]
                arguments = "bytes"
            elif kind == "Unigram":
                model = random_unigram(r, alphabet)
            elif kind == "WordPiece":
                model = random_wordpiece(r, alphabet)
            else:
                model = random_wordlevel(r, alphabet)
            theirs = from_json(model)
            expected = expected_bytes(theirs) if arguments == "bytes" else expected_text(theirs)
            texts = [t[0] if isinstance(t, list) else t for t in model["vocab"]]
            pieces = random_pieces(r, args.pieces, alphabet, [t for t in texts if t])
            bad += c.compare(kind, [arguments, c.json_file(model)], expected, pieces)
        print(f"{kind}: {args.models} random models, {bad} pieces differ")


# ---- real models ----

def words_of():
    folder = os.path.dirname(os.path.abspath(__file__))
    words = set()
    for name in ("check_token_models.py", "../README.md", "../docs/from-pytorch.md"):
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            text = f.read()
        words.update(" " + w for w in text.split())
        words.update(text.split())
        words.update(text[i:i + 200] for i in range(0, len(text), 997))
    return sorted(words)


def tiktoken_expected(ranks):
    import tiktoken
    encoding = tiktoken.Encoding("t", pat_str=".", mergeable_ranks=ranks, special_tokens={})

    def expected(piece):
        out, at = [], 0
        for i in encoding._encode_single_piece(piece):
            n = len(encoding.decode_single_token_bytes(i))
            out.append((i, at, at + n))
            at += n
        return out
    return expected


def pieces_of(path):
    import sentencepiece
    sp = sentencepiece.SentencePieceProcessor(model_file=path)
    return sp, [sp.id_to_piece(i) for i in range(sp.get_piece_size())]


def llama2_model(path):
    """The model that AutoTokenizer of transformers makes of a SentencePiece BPE model."""
    sp, texts = pieces_of(path)
    vocab = {p: i for i, p in enumerate(texts)}
    normal = {p: i for p, i in vocab.items()
              if not (sp.is_control(i) or sp.is_unknown(i) or sp.is_byte(i))}
    merges = sorted((-sp.get_score(i), i, p[:k], p[k:]) for p, i in normal.items()
                    for k in range(1, len(p)) if p[:k] in normal and p[k:] in normal)
    return models.BPE(vocab=vocab, merges=[m[2:] for m in merges], unk_token="<unk>", fuse_unk=True,
                      byte_fallback=True)


def t5_model(path):
    sp, texts = pieces_of(path)
    return models.Unigram([(t, sp.get_score(i)) for i, t in enumerate(texts)], sp.unk_id(), False)


def check_real(c, args):
    r, data = c.random, args.data
    words = words_of()
    letters = list("abcdefgh ETAO.,") + [MARK]

    def pieces(marked):
        texts = [w.replace(" ", MARK).replace("\n", MARK) if marked else w for w in words]
        out = random_pieces(r, args.pieces * 20, letters, texts)
        out += [t.encode() for t in texts]
        out += [b"a" * 100000, ("ab " * 33333).replace(" ", MARK if marked else " ").encode(),
                ("\u4e2d" * 30000).encode()]
        return out

    with open(f"{data}/gpt2/tokenizer.json", encoding="utf-8") as f:
        gpt2 = json.load(f)["model"]
    some = pieces(False)
    print("gpt2:", c.compare("gpt2", ["bytes", c.json_file(gpt2)], expected_bytes(from_json(gpt2)),
                             some), "differ")
    print("gpt2 from files:", c.compare(
        "gpt2", ["bpe", f"{data}/gpt2/vocab.json", f"{data}/gpt2/merges.txt"],
        expected_bytes(from_json(gpt2)), some), "differ")
    bert = models.WordPiece.from_file(f"{data}/bert/vocab.txt", unk_token="[UNK]")
    print("bert:", c.compare("bert", ["wordpiece", f"{data}/bert/vocab.txt"], expected_text(bert),
                             [p.lower() for p in pieces(False)]), "differ")
    with open(f"{data}/t5/tokenizer.json", encoding="utf-8") as f:
        t5 = json.load(f)["model"]
    some = pieces(True)
    print("t5:", c.compare("t5", ["json", c.json_file(t5)], expected_text(from_json(t5)), some),
          "differ")
    print("t5 from spiece.model:", c.compare("t5", ["sentencepiece", f"{data}/t5/spiece.model"],
                                             expected_text(t5_model(f"{data}/t5/spiece.model")), some),
          "differ")
    print("llama2:", c.compare("llama2", ["sentencepiece", f"{data}/llama2/tokenizer.model"],
                               expected_text(llama2_model(f"{data}/llama2/tokenizer.model")), some),
          "differ")
    with open(f"{data}/llama3/tokenizer.model", "rb") as f:
        ranks = {base64.b64decode(a): int(b) for a, b in (line.split() for line in f)}
    print("llama3:", c.compare("llama3", ["tiktoken", f"{data}/llama3/tokenizer.model"],
                               tiktoken_expected(ranks), pieces(False)), "differ")


# ---- training ----

def train_theirs(pieces, size, min_frequency):
    """The merges of BpeTrainer as ids, and the words that it counts."""
    from tokenizers import pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    # The pieces are spelled in GPT-2's alphabet, which has no space.
    tokenizer.pre_tokenizer = pre_tokenizers.CharDelimiterSplit(" ")
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=min_frequency,
                                  special_tokens=["<s>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator((spell(p) for p in pieces), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    vocab = model["vocab"]
    return [(vocab[a], vocab[b], vocab[a + b]) for a, b in model["merges"]]


def check_training(c, args):
    r = c.random
    bad = 0
    for i in range(args.models):
        if i % 5 == 4:
            pieces = [w.encode() for w in words_of() if len(w) < 60]
        else:
            letters = r.choice(["ab", "abc", "ab \n", "a\u00e9"])
            pieces = ["".join(r.choice(letters) for _ in range(r.randrange(1, 12))).encode()
                      for _ in range(r.randrange(1, 2000))]
        size, min_frequency = r.choice([257, 258, 270, 400, 3000]), r.choice([0, 1, 2, 5])
        path = os.path.join(c.folder, "pieces")
        with open(path, "wb") as f:
            for piece in pieces:
                f.write(struct.pack("<I", len(piece)) + piece)
        done = subprocess.run([c.program, "train", path, str(size), str(min_frequency)],
                              capture_output=True, check=True)
        ours = [tuple(map(int, line.split())) for line in done.stdout.decode().splitlines()]
        theirs = train_theirs(pieces, size, min_frequency)
        c.compared += 1
        if ours != theirs:
            bad += 1
            at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), None)
            print(f"training {i}: {len(ours)} and {len(theirs)} merges, first difference {at}: "
                  f"{ours[at] if at is not None else None} {theirs[at] if at is not None else None}")
    c.failed += bad
    print(f"training: {args.models} vocabularies, {bad} differ")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--data")
    parser.add_argument("--models", type=int, default=50)
    parser.add_argument("--pieces", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    c = Checker(args)
    check_random(c, args)
    check_training(c, args)
    if args.data:
        check_real(c, args)
    print(f"{c.compared} pieces compared, {c.failed} differ")
    sys.exit(1 if c.failed else 0)


if __name__ == "__main__":
    main()
