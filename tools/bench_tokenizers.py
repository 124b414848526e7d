#!/usr/bin/env python3
"""Compare the speed of tokenizers with tiktoken, sentencepiece and the tokenizers library.

    make benches && python3 tools/bench_tokenizers.py [--rounds N] [--threads N] DATA

DATA has folders tokenizers/ and text/. All programs encode the same documents of about 4000 bytes in
turns, and the median over the rounds of megabytes per second of processor time is printed: with
several threads, a machine that is busy with something else then changes little. Needs tiktoken,
sentencepiece and tokenizers.
"""
import argparse
import base64
import json
import os
import re
import statistics
import subprocess
import time

PROGRAM = "build/bench/tokenizer"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"


def documents(path):
    """Parts of at least 4000 bytes that end with a line, as the program makes them."""
    parts, part, size = [], [], 0
    with open(path, encoding="utf-8", newline="") as file:
        for line in file.read().splitlines(keepends=True):
            part.append(line)
            size += len(line.encode())
            if size >= 4000:
                parts.append("".join(part))
                part, size = [], 0
    return parts + ["".join(part)] if part else parts


def gpt2_ranks(path):
    bytes_ = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    letters = bytes_[:]
    for b in range(256):
        if b not in bytes_:
            bytes_.append(b)
            letters.append(256 + len(bytes_) - 189)
    byte_of = {chr(c): b for b, c in zip(bytes_, letters)}
    with open(path, encoding="utf-8") as file:
        return {bytes(byte_of[c] for c in token): i for token, i in json.load(file).items()
                if token != "<|endoftext|>"}


def rivals(folder, threads):
    """{family: {name: function of documents}}"""
    import sentencepiece
    import tiktoken
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    with open(f"{folder}/llama3/tokenizer.model") as file:
        ranks = {base64.b64decode(a): int(b) for a, b in (line.split() for line in file)}
    llama3 = tiktoken.Encoding("llama3", pat_str=LLAMA3, mergeable_ranks=ranks,
                               special_tokens={"<|begin_of_text|>": 128000})
    gpt2 = tiktoken.Encoding("gpt2", pat_str=GPT2, special_tokens={"<|endoftext|>": 50256},
                             mergeable_ranks=gpt2_ranks(f"{folder}/gpt2/vocab.json"))
    bert = Tokenizer(models.WordPiece.from_file(f"{folder}/bert/vocab.txt", unk_token="[UNK]"))
    bert.normalizer = normalizers.BertNormalizer(lowercase=True)
    bert.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pieces = {name: sentencepiece.SentencePieceProcessor(model_file=f"{folder}/{name}/{file}")
              for name, file in (("t5", "spiece.model"), ("llama2", "tokenizer.model"))}

    def library(tokenizer):
        return lambda texts: tokenizer.encode_batch_fast(texts, add_special_tokens=False)

    def tik(encoding):
        if threads == 1:
            return lambda texts: [encoding.encode_ordinary(text) for text in texts]
        return lambda texts: encoding.encode_ordinary_batch(texts, num_threads=threads)

    def piece(processor):
        return lambda texts: processor.encode(texts, num_threads=threads)

    return {"gpt2": {"tiktoken": tik(gpt2),
                     "tokenizers": library(Tokenizer.from_file(f"{folder}/gpt2/tokenizer.json"))},
            "llama3": {"tiktoken": tik(llama3)},
            "bert": {"tokenizers": library(bert)},
            "t5": {"sentencepiece": piece(pieces["t5"]),
                   "tokenizers": library(Tokenizer.from_file(f"{folder}/t5/tokenizer.json"))},
            "llama2": {"sentencepiece": piece(pieces["llama2"])}}


def own_speed(path, text, threads):
    out = subprocess.run([PROGRAM, "speed", path, text, str(threads)], capture_output=True, text=True,
                         check=True).stdout
    return [float(x) for x in re.findall(r"^documents, .*: ([0-9.]+) MB/s", out, re.M)]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(args.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if args.threads > 1 else "false"
    programs = rivals(f"{args.data}/tokenizers", args.threads)
    for text in sorted(os.listdir(f"{args.data}/text")):
        path = f"{args.data}/text/{text}"
        texts, size = documents(path), os.path.getsize(path) / 1e6
        for family, others in programs.items():
            speeds = {"fsdp": []} | {name: [] for name in others}
            for _ in range(args.rounds):
                speeds["fsdp"] += own_speed(f"{args.data}/tokenizers/{family}", path, args.threads)
                for name, encode in others.items():
                    begin = time.process_time()
                    encode(texts)
                    speeds[name].append(size / (time.process_time() - begin))
            medians = {name: statistics.median(values) for name, values in speeds.items()}
            print(f"{text}, {family}, {args.threads} threads: " + ", ".join(
                f"{name} {value:.1f}" + (f" (x {medians['fsdp'] / value:.1f})" if name != "fsdp" else "")
                for name, value in medians.items()) + " MB/s", flush=True)


if __name__ == "__main__":
    main()
