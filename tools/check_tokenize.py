#!/usr/bin/env python3
"""Compares `fsdp tokenize` with the tokenizers, datasets and transformers of Hugging Face.

usage: check_tokenize.py FSDP TOKENIZER_FOLDER TEXT_FILE

Needs tokenizers, datasets, transformers and numpy. The folder has a tokenizer.json. The text file is
divided into documents at blank lines. Compared are:

- the ids of token files of all kinds, with 1 and 3 threads, with and without eos;
- the rows and features of an Arrow folder, and blocks as run_clm's group_texts() makes them;
- rows of JSON lines and CSV with a prompt and a completion, and their labels;
- the tokenizer of --train-vocab, with a tokenizer that BpeTrainer learns from the same texts.
"""
import csv
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

import numpy as np
from datasets import load_from_disk
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer

failed = 0


def check(name, ok):
    global failed
    print("ok  " if ok else "FAIL", name)
    failed += not ok


def documents(text):
    """The documents between blank lines, without the line ends after them."""
    parts = re.split(r"(?:^|(?<=\n))[ \t\r\f\v]*\n", text)
    return [p.rstrip("\r\n") for p in parts if p.strip(" \t\r\f\v\n")]


def main():
    fsdp, folder, path = sys.argv[1:]
    fsdp, folder, path = map(os.path.abspath, (fsdp, folder, path))
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    eos = tokenizer.token_to_id("<|endoftext|>")
    docs = documents(open(path, newline="").read())
    os.chdir(tempfile.mkdtemp())

    def run(*args, tok=True):
        command = [fsdp, "tokenize", "--no-progress"] + (["--tokenizer", folder] if tok else [])
        subprocess.run(command + list(args), check=True, stdout=subprocess.DEVNULL)

    rows = [e.ids for e in tokenizer.encode_batch(docs)]
    flat = [i for r in rows for i in r + [eos]]
    for threads in "1", "3":
        out = f"a{threads}.bin"
        run("--data", path, "--output", out, "--threads", threads)
        check(f"nanogpt, {threads} threads", np.fromfile(out, np.uint16).tolist() == flat)
    run("--data", path, "--output", "plain.bin", "--no-eos")
    check("without eos", np.fromfile("plain.bin", np.uint16).tolist() == sum(rows, []))
    run("--data", path, "--output", "c.bin", "--format", "llm.c")
    header = np.fromfile("c.bin", np.int32, 256)
    check("llm.c", header[:3].tolist() == [20240520, 1, len(flat)] and not header[3:].any()
          and np.fromfile("c.bin", np.uint16, offset=1024).tolist() == flat)
    run("--data", path, "--output", "m.bin", "--format", "megatron", "--token-dtype", "int32")
    raw = open("m.idx", "rb").read()
    magic, version, code, n, n_docs = struct.unpack("<9sQBQQ", raw[:34])
    sizes = np.frombuffer(raw, np.int32, n, 34)
    offsets = np.frombuffer(raw, np.int64, n, 34 + 4 * n)
    starts = np.frombuffer(raw, np.int64, n_docs, 34 + 12 * n)
    check("megatron", magic == b"MMIDIDX\0\0" and (version, code) == (1, 4) and n == len(docs)
          and sizes.tolist() == [len(r) + 1 for r in rows]
          and offsets.tolist() == (4 * (np.cumsum(sizes) - sizes)).tolist()
          and starts.tolist() == list(range(n + 1))
          and np.fromfile("m.bin", np.int32).tolist() == flat)

    run("--data", path, "--output", "arrow")
    table = load_from_disk("arrow")
    check("arrow", table["input_ids"][:] == [r + [eos] for r in rows]
          and table["attention_mask"][:] == [[1] * (len(r) + 1) for r in rows])
    run("--data", path, "--output", "blocks", "--block-size", "64")
    table = load_from_disk("blocks")
    blocks = [flat[i:i + 64] for i in range(0, len(flat) // 64 * 64, 64)]
    check("blocks", table["input_ids"][:] == blocks and table["labels"][:] == blocks)
    run("--data", path, "--output", "parts", "--validation-fraction", "0.3")
    parts = load_from_disk("parts")
    both = parts["train"]["input_ids"][:] + parts["validation"]["input_ids"][:]
    check("validation", sorted(both) == sorted(r + [eos] for r in rows)
          and 0.2 < len(parts["validation"]) / len(rows) < 0.4)

    pairs = [(d[: len(d) // 2], d[len(d) // 2:]) for d in docs[:300]]
    with open("pairs.jsonl", "w") as jsonl, open("pairs.csv", "w", newline="") as table:
        writer = csv.writer(table)
        writer.writerow(["prompt", "completion"])
        for prompt, completion in pairs:
            jsonl.write(json.dumps({"prompt": prompt, "completion": completion}) + "\n")
            writer.writerow([prompt, completion])
    ids, labels = [], []
    for prompt, completion in pairs:
        whole, alone = (tokenizer.encode(t).ids for t in (prompt + completion, prompt))
        n = 0
        while n < min(len(whole), len(alone)) and whole[n] == alone[n]:
            n += 1
        ids.append(whole + [eos])
        labels.append([-100] * n + whole[n:] + [eos])
    for name in "pairs.jsonl", "pairs.csv":
        run("--data", name, "--output", name + ".out")
        table = load_from_disk(name + ".out")
        check(name, table["input_ids"][:] == ids and table["labels"][:] == labels)

    run("--data", path, "--output", "vocab", "--train-vocab", "2000", tok=False)
    own = Tokenizer(models.BPE())
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = decoders.ByteLevel()
    own.train_from_iterator(docs, trainers.BpeTrainer(
        vocab_size=2000, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    found = AutoTokenizer.from_pretrained("vocab")
    check("train-vocab: the vocabulary", found.get_vocab() == own.get_vocab())
    check("train-vocab: ids", all(found(d)["input_ids"] == own.encode(d).ids for d in docs))
    check("train-vocab: decoding", all(found.decode(found(d)["input_ids"]) == d for d in docs))
    check("train-vocab: special", found.eos_token == "<|endoftext|>" and found.eos_token_id == 0)
    sys.exit(failed > 0)


main()
