#!/usr/bin/env python3
"""Compares tokenizers with the tokenizers library (pip install tokenizers transformers).

    make benches && python3 tools/check_tokenizers.py [--strings N] [--seed S] [--only NAME] DATA

DATA has folders tokenizers/ and vectors/. Ids, offsets, type ids and decoded texts of
the strings of vectors/*.inp and of N random strings must be equal for each tokenizer: those of DATA
and constructed ones, which use every part of a tokenizer.json. Pairs, truncation and the way without
special tokens are drawn at random.
"""
import argparse
import glob
import json
import os
import random
import subprocess
import sys
import tempfile

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

PROGRAM = "build/bench/tokenizer"


# ---- texts ----

def text_of_vectors(data):
    texts = []
    for path in sorted(glob.glob(f"{data}/vectors/*.inp")):
        with open(path, encoding="utf-8", newline="") as file:
            texts += file.read().split("\n__ggml_vocab_test__\n")
    return texts


WORDS = ("the The of house's don't I'LL we've they'd 's 'S 'ſ 're hello Hello HELLO wonderful a b x "
         "İstanbul naïve café Straße ΑΣ ǅ ﬁne ①② ½ Ⅻ 1234567 3.14 １２ ٣٤ 中文字 日本語 한국어 한국 ｶﾞ ア "
         "क्षि กำ ไทย עִבְרִית العربية ❤️ 👩‍👩‍👧 🇩🇪 é e\u0301 a\u0308\u0323 o\u0323\u0302 \u0344 Å ℌ ﷺ "
         "<s> </s> <unk> <pad> [CLS] [SEP] [MASK] <mask> <|endoftext|> <extra_id_0> <extra_id_99> "
         "<|begin_of_text|> <|eot_id|> <|im_start|> [INST] foo bar sep SEP lmao <0x0A> ▁ ▁▁ Ġ Ċ ## ##ing "
         "http://x.y/z?q=1&r=2 e-mail@x.org :-) ... !!! ``quote'' \u201cq\u201d \u2026 \u00ad \u200b "
         "\u200d \ufeff \ufffd \u2028 \u2029 \u180e \u3000 \u00a0 \u0085 \u1680 \u0000 \u0001 \u007f "
         "\U0001F600 \U0010FFFF \uE000 \uA7DA \u0300 \u0D4D \u0E33 \u1100\u1161\u11A8 \uAC00\u11A8").split(" ")


def random_text(rng):
    kind = rng.random()
    n = rng.choice([0, 1, 2, 3, 5, 8, 13, 30])
    if kind < 0.45:
        separators = [" ", "  ", "\n", "\r\n", "\t", "", "", " \n ", "   ", "\n\n", "\u00a0", "-", ",", "."]
        return "".join(rng.choice(WORDS) + rng.choice(separators) for _ in range(n))
    if kind < 0.6:
        return "".join(chr(rng.choice([rng.randrange(32, 127), rng.randrange(0x300), rng.randrange(0x3000)]))
                       for _ in range(n))
    if kind < 0.7:
        return "".join(rng.choice(" \t\n\r\u00a0\u3000ab1.'") for _ in range(n))
    if kind < 0.8:
        return "".join(rng.choice("ab e\u0301\u0308\u0323\u0327\u093c\u0334\u1161\u11a8\u1100\u200d\r\n①é") for _ in range(n))
    if kind < 0.9:
        return "".join(rng.choice(["'s", "'S", "'", "Re", "'re", "'LL", "a", " ", "1", "12", "!", "\n"])
                       for _ in range(n))
    text = []
    while len(text) < n:
        c = rng.randrange(0x110000) if rng.random() < 0.5 else rng.randrange(0x3000)
        if not 0xD800 <= c < 0xE000:
            text.append(chr(c))
    return "".join(text)


# ---- the program ----

class Program:
    def __init__(self, path):
        self.process = subprocess.Popen([PROGRAM, "check", path], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def encode(self, text, pair, max_length, truncation, flags):
        a = text.encode()
        b = pair.encode() if pair is not None else b""
        head = f"{len(a)} {len(b) if pair is not None else -1} {max_length} {truncation} {flags}\n"
        try:
            self.process.stdin.write(head.encode() + a + b)
            self.process.stdin.flush()
        except BrokenPipeError:
            raise SystemExit("the program ended: " + self.process.stderr.read().decode())
        line = self.process.stdout.readline().decode()
        if not line:
            raise SystemExit("the program ended: " + self.process.stderr.read().decode())
        if line.startswith("error"):
            return line.strip()
        fields = line.split()
        n = int(fields[0])
        tokens = [tuple(map(int, f.split(","))) for f in fields[1:1 + n]]
        decoded = [None if h == "!" else bytes.fromhex(h[:-1]).decode() for h in fields[1 + n:3 + n]]
        return tokens, decoded

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def expected(tokenizer, text, pair, max_length, truncation, flags):
    special = not flags & 1
    if max_length:
        tokenizer.enable_truncation(max_length, strategy=["longest_first", "only_first", "only_second"][truncation],
                                    direction="left" if flags & 2 else "right")
    else:
        tokenizer.no_truncation()
    try:
        e = tokenizer.encode(text, pair, add_special_tokens=special)
    except BaseException as error:  # also a panic of the library
        if isinstance(error, KeyboardInterrupt):
            raise
        return "error " + str(error)
    tokens = [(i, o[0], o[1], t) for i, o, t in zip(e.ids, e.offsets, e.type_ids)]
    try:
        decoded = [tokenizer.decode(e.ids, skip_special_tokens=skip).replace("\0", "") for skip in (False, True)]
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        decoded = None
    return tokens, decoded


def compare(name, tokenizer, path, texts, rng, show):
    program = Program(path)
    different = refused = 0
    tokenizer.no_padding()
    for i, text in enumerate(texts):
        pair = rng.choice(texts) if rng.random() < 0.15 else None
        max_length = rng.choice([1, 2, 3, 4, 5, 8, 13]) if rng.random() < 0.15 else 0
        truncation = rng.randrange(3) if pair is not None else 0
        flags = (rng.random() < 0.1) | 2 * (max_length and rng.random() < 0.3)
        want = expected(tokenizer, text, pair, max_length, truncation, flags)
        got = program.encode(text, pair, max_length, truncation, flags)
        if isinstance(want, str) and isinstance(got, str):
            refused += 1
            continue
        if isinstance(got, str) and got.startswith("error max_length"):
            refused += 1  # shorter than the special tokens: the library returns more than max_length
            continue
        if isinstance(want, str) and max_length:
            refused += 1  # the library fails for some lengths that have a result
            continue
        if not isinstance(want, str) and want[1] is None and not isinstance(got, str):
            want, got = want[0], got[0]
        if want != got:
            different += 1
            if different <= show:
                print(f"  {name}: {text!r} {pair!r} {max_length} {truncation} {flags}\n    want {want}\n    got  {got}")
    program.close()
    print(f"{name}: {len(texts)} texts, {different} different, {refused} refused by both")
    return different


# ---- constructed tokenizers ----

CORPUS = None


def corpus():
    global CORPUS
    if CORPUS is None:
        rng = random.Random(1)
        lines = [random_text(rng).replace("\0", "") for _ in range(3000)]  # NUL is refused in a tokenizer.json
        CORPUS = lines + ["the house is wonderful and the hello of a naive cafe 1234 'tis don't " * 3] * 50
    return CORPUS


def train(tokenizer, trainer, few=False):
    lines = corpus()
    if few:  # all characters of the corpus become tokens
        known = set("".join(WORDS)) | set(map(chr, range(32, 127)))
        lines = ["".join(c for c in line if c in known) for line in lines]
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def bpe(normalizer, pre, decoder, post=None, size=900, **options):
    t = Tokenizer(models.BPE(**options))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizer, pre, decoder
    alphabet = pre_tokenizers.ByteLevel.alphabet() if "ByteLevel" in repr(pre) or "ByteLevel" in repr(normalizer) else []
    train(t, trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False,
                                 special_tokens=[options.get("unk_token") or "<unk>", "<s>", "</s>", "<pad>"]))
    if post is not None:
        t.post_processor = post
    return t


def unigram(normalizer, pre, decoder, post=None, size=700, byte_fallback=False):
    t = Tokenizer(models.Unigram())
    t.normalizer, t.pre_tokenizer, t.decoder = normalizer, pre, decoder
    train(t, trainers.UnigramTrainer(vocab_size=size, unk_token="<unk>", show_progress=False,
                                     special_tokens=["<s>", "</s>", "<unk>", "<pad>", "[MASK]"]), few=True)
    if post is not None:
        t.post_processor = post
    return t


def wordpiece(normalizer, pre, decoder, post=None, size=900):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizer, pre, decoder
    train(t, trainers.WordPieceTrainer(vocab_size=size, show_progress=False,
                                       special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    if post is not None:
        t.post_processor = post
    return t


def template(single, pair, **tokens):
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=list(tokens.items()))


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
TEKKEN = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEEPSEEK = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""


def split_and_bytes(pattern, **options):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False, **options)])


def byte_level_family():
    N, P, D = normalizers, pre_tokenizers, decoders
    yield "gpt-neox-like", bpe(N.NFC(), P.ByteLevel(add_prefix_space=False), D.ByteLevel(), processors.ByteLevel(trim_offsets=True))
    yield "gpt2-prefix-space", bpe(None, P.ByteLevel(add_prefix_space=True), D.ByteLevel(), processors.ByteLevel(trim_offsets=True))
    t = bpe(None, P.ByteLevel(add_prefix_space=False), D.ByteLevel())
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1), trim_offsets=True, add_prefix_space=False)
    t.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    yield "roberta-like", t
    t = bpe(N.NFC(), split_and_bytes(QWEN2), D.ByteLevel(), processors.ByteLevel(trim_offsets=False))
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t.add_tokens([AddedToken("<tool_call>", normalized=False)])
    yield "qwen2-like", t
    t = bpe(None, split_and_bytes(LLAMA3), D.ByteLevel(), ignore_merges=True)
    t.add_special_tokens(["<|begin_of_text|>", "<|eot_id|>"])
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                            template("<|begin_of_text|> $A", "<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                                                     **{"<|begin_of_text|>": t.token_to_id("<|begin_of_text|>")})])
    yield "llama3-like", t
    yield "cl100k-like", bpe(None, split_and_bytes(CL100K), D.ByteLevel())
    yield "tekken-like", bpe(None, split_and_bytes(TEKKEN), D.ByteLevel())
    yield "deepseek-like", bpe(N.Sequence([]), P.Sequence([
        P.Split(Regex(r"\p{N}{1,3}"), "isolated"), P.Split(Regex(r"[一-龥぀-ゟ゠-ヿ]+"), "isolated"),
        P.Split(Regex(DEEPSEEK), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)]), D.ByteLevel())
    yield "bytes-normalizer", bpe(N.Sequence([N.NFD(), N.ByteLevel()]), P.Digits(individual_digits=True), D.ByteLevel())
    yield "bytes-then-digits", bpe(None, P.Sequence([P.ByteLevel(add_prefix_space=True), P.Digits(individual_digits=False)]), D.ByteLevel())


def sentencepiece_family(charsmap):
    N, P, D = normalizers, pre_tokenizers, decoders
    eos = template("$A </s>", "$A </s> $B </s>", **{"</s>": 1})
    space = D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)])
    yield "llama-legacy", bpe(N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]), None, space, template("<s> $A", "<s> $A <s>:1 $B:1", **{"<s>": 1}), unk_token="<unk>", fuse_unk=True)
    yield "llama-first", bpe(None, P.Metaspace("▁", "first", split=False), space, unk_token="<unk>", fuse_unk=True)
    yield "mistral-like", bpe(None, P.Metaspace("▁", "first", split=True), space, unk_token="<unk>")
    yield "first-after-strip", bpe(N.Sequence([N.Strip(), N.NFKC()]), P.Metaspace("▁", "first", split=False), space, unk_token="<unk>")
    yield "first-after-replace", bpe(N.Replace(Regex(r"^\s*|``"), "_"), P.Sequence([P.Punctuation(), P.Metaspace("▁", "first")]), space, unk_token="<unk>")
    yield "gemma-like", bpe(N.Replace(" ", "▁"), P.Split(" ", "merged_with_previous"), space, unk_token="<unk>")
    yield "albert-like", unigram(N.Sequence([N.Replace("``", '"'), N.Replace("''", '"'), N.NFKD(), N.StripAccents(), N.Lowercase(), N.Precompiled(charsmap), N.Replace(Regex(" {2,}"), " ")]),
                                 P.Metaspace(), D.Metaspace(), template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", **{"[CLS]": 2, "[SEP]": 3}))
    yield "xlm-r-like", unigram(N.Precompiled(charsmap), P.Sequence([P.WhitespaceSplit(), P.Metaspace()]), D.Metaspace(), eos)
    yield "scripts-unigram", unigram(N.Precompiled(charsmap), P.Sequence([P.UnicodeScripts(), P.WhitespaceSplit(), P.Metaspace()]), D.Metaspace(), eos)
    yield "t5-new", unigram(N.Sequence([N.Precompiled(charsmap), N.Strip(False, True), N.Replace(Regex(" {2,}"), "▁")]), P.Metaspace("▁", "always"), D.Metaspace(), eos)
    yield "nmt", unigram(N.Sequence([N.Nmt(), N.NFKC(), N.Strip()]), P.Sequence([P.CharDelimiterSplit("-"), P.Metaspace("▁", "never")]), D.Metaspace(prepend_scheme="never"))


def bert_family():
    N, P, D = normalizers, pre_tokenizers, decoders
    post = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    yield "bert-uncased", wordpiece(N.BertNormalizer(), P.BertPreTokenizer(), D.WordPiece(), post)
    yield "bert-cased", wordpiece(N.BertNormalizer(lowercase=False), P.BertPreTokenizer(), D.WordPiece(cleanup=False), post)
    yield "bert-odd", wordpiece(N.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False), P.Whitespace(), D.WordPiece(), post)
    yield "lower-nfd", wordpiece(N.Sequence([N.NFD(), N.Lowercase(), N.StripAccents()]), P.Sequence([P.Whitespace(), P.Digits(True)]), D.WordPiece(), post)


def other_family():
    N, P, D = normalizers, pre_tokenizers, decoders
    for behavior in ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]:
        for invert in (False, True):
            for name, pattern in [("text", "a"), ("regex", Regex(r"[\s']+|\d")), ("empty", Regex(r"(?=[A-Z])|x*"))]:
                yield f"split-{name}-{behavior}-{invert}", bpe(None, P.Split(pattern, behavior, invert), None, unk_token="<unk>")
        yield f"punctuation-{behavior}", bpe(None, P.Punctuation(behavior), D.BPEDecoder("</w>"), unk_token="<unk>", end_of_word_suffix="</w>")
    yield "digits", bpe(N.NFKD(), P.Digits(False), D.Fuse(), unk_token="<unk>", continuing_subword_prefix="##")
    yield "scripts", bpe(None, P.UnicodeScripts(), None, unk_token="<unk>")
    yield "scripts-digits", bpe(N.NFKC(), P.Sequence([P.UnicodeScripts(), P.Digits(True)]), D.Fuse(), unk_token="<unk>")
    yield "fixed-length", bpe(N.Lowercase(), P.FixedLength(3), None, unk_token="<unk>")
    yield "word-boundary", bpe(None, P.Split(Regex(r"\b|\w+|[^\W\d_]{2}?|[[:punct:]&&[^.]]|\h+$"), "isolated"), None, unk_token="<unk>")
    yield "repeats", bpe(None, P.Split(Regex(r"a{1,2}+|(?i)the|[[a-c][x-z]]{,2}|\p{Han}+|\p{^L}"), "isolated"), None, unk_token="<unk>")
    t = Tokenizer(models.WordLevel(unk_token="<unk>"))
    t.normalizer, t.pre_tokenizer = N.Sequence([N.NFD(), N.StripAccents()]), P.Whitespace()
    train(t, trainers.WordLevelTrainer(vocab_size=300, show_progress=False, special_tokens=["<unk>"]))
    t.decoder = D.Sequence([D.Replace(Regex("[ae]+"), "-"), D.Strip("-", 1, 1)])
    yield "word-level", t
    t = bpe(N.Sequence([N.Lowercase(), N.Strip()]), P.WhitespaceSplit(), D.ByteFallback(), unk_token="<unk>")
    t.add_tokens([AddedToken("foo", single_word=True), AddedToken("bar", lstrip=True), AddedToken("SEP", rstrip=True),
                  AddedToken("Hello", normalized=True), AddedToken("lmao", normalized=False, lstrip=True, rstrip=True), AddedToken("  ", normalized=False)])
    t.add_special_tokens([AddedToken("<mask>", lstrip=True), AddedToken("[INST]", rstrip=True), AddedToken("<|im_start|>", single_word=True)])
    yield "added-tokens", t


# ---- tokenizers of DATA ----

def llama_of_sentencepiece(path):
    """What LlamaTokenizer.from_pretrained() makes of the file, without the protobuf package."""
    from sentencepiece import SentencePieceProcessor
    from transformers import LlamaTokenizer
    from transformers.tokenization_utils_base import generate_merges
    sp = SentencePieceProcessor(model_file=path)
    vocab = {sp.id_to_piece(i): i for i in range(sp.get_piece_size())}
    scores = {sp.id_to_piece(i): sp.get_score(i) for i in range(sp.get_piece_size())}
    return LlamaTokenizer(vocab=vocab, merges=generate_merges(vocab, scores), add_bos_token=True).backend_tokenizer


def data_family(data, folder):
    """Yields name, tokenizer, path. Files without a tokenizer.json are opened by transformers."""
    from transformers import BertTokenizer, GPT2Tokenizer, T5Tokenizer
    base = f"{data}/tokenizers"
    for name in ("gpt2", "t5"):
        yield f"{name}/tokenizer.json", Tokenizer.from_file(f"{base}/{name}/tokenizer.json"), f"{base}/{name}/tokenizer.json"
    yield "t5/spiece.model", T5Tokenizer.from_pretrained(base + "/t5").backend_tokenizer, f"{base}/t5/spiece.model"
    t = llama_of_sentencepiece(f"{base}/llama2/tokenizer.model")
    os.makedirs(f"{folder}/llama2")
    os.symlink(os.path.abspath(f"{base}/llama2/tokenizer.model"), f"{folder}/llama2/tokenizer.model")
    with open(f"{folder}/llama2/tokenizer_config.json", "w") as file:
        json.dump({"tokenizer_class": "LlamaTokenizerFast", "legacy": False, "add_bos_token": True, "add_eos_token": True,
                   "bos_token": {"__type": "AddedToken", "content": "<s>"}}, file)
    t.post_processor = template("<s> $A </s>", "<s> $A </s> <s>:1 $B:1 </s>:1", **{"<s>": 1, "</s>": 2})
    yield "llama2/not legacy", t, f"{folder}/llama2"
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.pre_tokenizer = None
    t.post_processor = template("<s> $A", "<s> $A <s>:1 $B:1", **{"<s>": 1})
    yield "llama2/tokenizer.model", t, f"{base}/llama2"
    t = BertTokenizer(f"{base}/bert/vocab.txt").backend_tokenizer
    yield "bert/vocab.txt", t, f"{base}/bert"
    t = GPT2Tokenizer(f"{base}/gpt2/vocab.json", f"{base}/gpt2/merges.txt").backend_tokenizer
    yield "gpt2/vocab.json", t, f"{base}/gpt2/vocab.json"
    from transformers.convert_slow_tokenizer import TikTokenConverter
    special = ["<|begin_of_text|>", "<|end_of_text|>"] + [f"<|reserved_special_token_{i}|>" for i in range(4)] + [
        "<|start_header_id|>", "<|end_header_id|>", "<|reserved_special_token_4|>", "<|eot_id|>"] + [
        f"<|reserved_special_token_{i}|>" for i in range(5, 251)]
    t = TikTokenConverter(f"{base}/llama3/tokenizer.model", extra_special_tokens=special).converted()
    t.post_processor = template("<|begin_of_text|> $A", "<|begin_of_text|> $A <|begin_of_text|>:1 $B:1", **{"<|begin_of_text|>": 128000})
    yield "llama3/tokenizer.model", t, f"{base}/llama3"


def main():
    global PROGRAM
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--program", default=PROGRAM, help="bench/tokenizer of a build")
    parser.add_argument("--strings", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--show", type=int, default=3)
    args = parser.parse_args()
    PROGRAM = args.program
    texts = text_of_vectors(args.data)
    rng = random.Random(args.seed)
    texts += [random_text(rng) for _ in range(args.strings)]
    charsmap = None
    with open(f"{args.data}/tokenizers/t5/tokenizer.json", encoding="utf-8") as file:
        import base64
        charsmap = base64.b64decode(json.load(file)["normalizer"]["precompiled_charsmap"])
    different = 0
    with tempfile.TemporaryDirectory() as folder:
        families = [byte_level_family(), sentencepiece_family(charsmap), bert_family(), other_family()]
        for family in families:
            for name, tokenizer in family:
                if args.only not in name:
                    continue
                path = os.path.join(folder, name + ".json")
                tokenizer.save(path)
                different += compare(name, Tokenizer.from_file(path), path, texts, rng, args.show)
        for name, tokenizer, path in data_family(args.data, folder):
            if args.only in name:
                different += compare(name, tokenizer, path, texts, rng, args.show)
    sys.exit(1 if different else 0)


main()
