#!/usr/bin/env python3
"""Write what transformers computes on real rows with a T5 folder, as a case for `fsdp verify` and for tests.

usage: tools/golden_text.py MODEL ROWS.csv CASE TEXTS [--rows N] [--max-new-tokens N]

Writes into the folder CASE: model, a link to MODEL; inputs.safetensors, the shortest two of the first N
rows (columns text and headline) as ids from transformers' tokenizer; their logits and loss in
expected.safetensors; and the allowed differences in tolerance.json. Writes into the folder TEXTS:
prompts.txt, the N sources, one per line, and texts.txt, the model's greedy texts in float32.
Needs torch, transformers, sentencepiece, safetensors; the tests do not need this script.
"""
import argparse
import csv
import json
import os
import pathlib

import torch
import transformers as hf
from safetensors.torch import save_file

from check_hf import LOGITS, LOSS, expected_of, load

PREFIX = "summarize: "


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("data")
    parser.add_argument("case", type=pathlib.Path)
    parser.add_argument("texts", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=12)
    parser.add_argument("--max-new-tokens", type=int, default=32)
    return parser.parse_args()


def read_rows(path, count):
    """Sources, on one line each, and targets."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = [row for _, row in zip(range(count), csv.DictReader(file))]
    return [(PREFIX + " ".join(row["text"].split()), row["headline"]) for row in rows]


def batch_of(tokenizer, rows):
    rows = sorted(rows, key=lambda row: len(row[0]))[:2]
    batch = dict(tokenizer([source for source, _ in rows], padding=True, return_tensors="pt"))
    labels = tokenizer([target for _, target in rows], padding=True, return_tensors="pt")["input_ids"]
    return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"],
            "labels": labels.masked_fill(labels == tokenizer.pad_token_id, -100)}


def generate(model, tokenizer, source, max_new_tokens):
    ids = tokenizer(source, return_tensors="pt", truncation=True, max_length=512)["input_ids"]
    out = model.generate(ids, max_new_tokens=max_new_tokens, num_beams=1, do_sample=False)
    return tokenizer.decode(out[0], skip_special_tokens=True)


def main():
    args = parse_args()
    model, tokenizer = load(args.model), hf.AutoTokenizer.from_pretrained(args.model)
    rows = read_rows(args.data, args.rows)
    batch = batch_of(tokenizer, rows)
    with torch.no_grad():
        expected = expected_of(model, batch, False)
    args.case.mkdir(parents=True, exist_ok=True)
    link = args.case / "model"
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(args.model, args.case))
    save_file(batch, args.case / "inputs.safetensors")
    save_file(expected, args.case / "expected.safetensors")
    tolerance = {"logits": {"absolute": LOGITS * expected["logits"].abs().max().item()},
                 "loss": {"absolute": LOSS * expected["loss"].item()}}
    (args.case / "tolerance.json").write_text(json.dumps({"suggested": tolerance}, indent=1) + "\n")
    texts = [generate(model, tokenizer, source, args.max_new_tokens) for source, _ in rows]
    args.texts.mkdir(parents=True, exist_ok=True)
    (args.texts / "prompts.txt").write_text("".join(f"{source}\n" for source, _ in rows))
    (args.texts / "texts.txt").write_text("".join(f"{text}\n" for text in texts))


if __name__ == "__main__":
    main()
