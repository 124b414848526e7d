#!/usr/bin/env python3
"""The job of examples/t5_wikihow.c in PyTorch: same rows, same order, same lines, to compare losses.

usage: torchrun --nproc_per_node N tools/torch_t5_wikihow.py --model DIR --data-dir FILE [options]
       tools/torch_t5_wikihow.py --model DIR --data-dir FILE --check T5-model--....pt

FullyShardedDataParallel over gloo, float32, on the CPU. Dropout is off, so the C program that it is
compared with must run a --model whose config.json has "dropout_rate": 0. --check loads a file that the
C program has saved into transformers' T5, strictly and with weights_only, and computes its validation
loss, which the file's name ends with; the exit code is 1 if they differ.

Needs torch, transformers and sentencepiece; the tests do not need this script.
"""
import argparse
import csv
import functools
import itertools
import os
import pathlib
import re
import sys

import sentencepiece
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.optim.lr_scheduler import StepLR
from transformers import T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5Block

PAD, EOS, IGNORE = 0, 1, -100
MASK64 = (1 << 64) - 1


# --- rows: Hugging Face's wikihow.py, then summarization_dataset.py ---

def read_rows(path):
    """(article, summary) of each row with a short enough summary, cleaned as both scripts do it."""
    with open(path, encoding="utf-8-sig", newline=None) as file:
        for row in csv.DictReader(file):
            summary, article = row["headline"].strip(), row["text"].strip()
            if not summary or len(summary) >= 0.75 * len(article):
                continue
            article = re.sub(r"[.]+[\n]+[,]", ".\n", article)
            yield clean_text(article), clean_text(summary.replace(".,", "."))


def clean_text(text):
    for piece in ("Example of text:", "Example of Summary:", "\n", "``", '"'):
        text = text.replace(piece, "")
    return text


def load_data(args):
    """Ids of the training and the validation rows; the last sixth, rounded up, is for validation."""
    tokenizer = sentencepiece.SentencePieceProcessor(str(pathlib.Path(args.model, "spiece.model")))
    rows = [[tokenizer.encode(text)[:length - 1] + [EOS] for text, length in zip(row, (512, 150))]
            for row in read_rows(args.data_dir)]
    train = len(rows) - (len(rows) + 5) // 6
    return rows[:train][:1500], rows[train:][:300]


def collate(rows, tutorial):
    width = max(len(source) for source, _ in rows)
    length = 150 if tutorial else max(1, max(len(target) for _, target in rows))
    fill = PAD if tutorial else IGNORE
    source = torch.tensor([ids + [PAD] * (width - len(ids)) for ids, _ in rows])
    mask = torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids, _ in rows])
    labels = torch.tensor([ids + [fill] * (length - len(ids)) for _, ids in rows])
    return {"input_ids": source, "attention_mask": mask, "labels": labels}


# --- the library's order of an epoch: src/data/sampler.c ---

def mix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK64
    return x ^ (x >> 31)


def permute(key, half_bits, x):
    mask = (1 << half_bits) - 1
    left, right = x >> half_bits, x & mask
    for step in range(10):
        mixed = mix64((key + (right << 8 | step)) & MASK64) & mask
        left, right = right, left ^ mixed
    return left << half_bits | right


def epoch_order(n, seed, epoch):
    half_bits = 4
    while 1 << 2 * half_bits < n:
        half_bits += 1
    key = mix64((mix64(seed) + epoch) & MASK64)
    for x in range(n):
        x = permute(key, half_bits, x)
        while x >= n:
            x = permute(key, half_bits, x)
        yield x


def distributed(order, rank, world_size):
    """DistributedSampler: continued from its beginning until world_size divides it."""
    order = list(order)
    padded = -(-len(order) // world_size) * world_size
    return list(itertools.islice(itertools.cycle(order), padded))[rank::world_size]


# --- T5_training.py ---

def each_once(rows, rank, world_size):
    """This rank's rows. Rows that are repeated to give all ranks the same number lose their labels."""
    mine = [rows[i] for i in distributed(range(len(rows)), rank, world_size)]
    counted = len(rows[rank::world_size])
    return mine[:counted] + [(source, []) for source, _ in mine[counted:]]


def one_pass(args, model, rows, batch_size, optimizer=None):
    fsdp_loss = torch.zeros(2, dtype=torch.float64)
    for first in range(0, len(rows), batch_size):
        inputs = collate(rows[first:first + batch_size], args.tutorial_loss)
        tokens = int((inputs["labels"] != IGNORE).sum())
        with torch.set_grad_enabled(optimizer is not None):
            loss = model(**inputs)["loss"]
        if optimizer:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if args.tutorial_loss:
            fsdp_loss += torch.tensor([loss.item(), 4.0])
        elif tokens:
            fsdp_loss += torch.tensor([loss.item() * tokens, tokens])
    if dist.is_initialized():
        dist.all_reduce(fsdp_loss)
    return (fsdp_loss[0] / fsdp_loss[1]).item()


def fsdp_main(args):
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    train_rows, val_rows = load_data(args)
    model = T5ForConditionalGeneration.from_pretrained(args.model, dtype=torch.float32).eval()
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={T5Block})
    model = FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    mine = each_once(val_rows, rank, world_size)
    if args.tutorial_loss:
        mine = [val_rows[i] for i in distributed(range(len(val_rows)), rank, world_size)]
    for epoch in range(1, args.epochs + 1):
        order = epoch_order(len(train_rows), args.seed, epoch - 1)
        rows = [train_rows[i] for i in distributed(order, rank, world_size)]
        loss = one_pass(args, model, rows, args.batch_size, optimizer)
        val_loss = one_pass(args, model, mine, args.test_batch_size)
        scheduler.step()
        if rank == 0:
            print(f"Train Epoch: \t{epoch}, Loss: \t{loss:.4f}\nValidation Loss: {val_loss:.4f}",
                  flush=True)
    dist.barrier()  # a rank that exits early breaks the connections of the others
    dist.destroy_process_group()


def check(args):
    """Check that the file's model is a T5 whose validation loss is the one in the file's name."""
    model = T5ForConditionalGeneration.from_pretrained(args.model, dtype=torch.float32).eval()
    model.load_state_dict(torch.load(args.check, weights_only=True), strict=True)
    _, val_rows = load_data(args)
    loss = one_pass(args, model, val_rows, args.test_batch_size)
    named = float(re.search(r"-(\d+\.\d+)\.pt$", args.check)[1])
    print(f"{args.check}: loaded; validation loss {loss:.4f}, its name says {named:.4f}")
    return 0 if abs(loss - named) <= 5e-5 + 2e-5 * named else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data-dir", required=True, help="a CSV file in WikiHow's form")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--test-batch-size", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=.002)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tutorial-loss", action="store_true")
    parser.add_argument("--check", metavar="FILE.pt")
    args = parser.parse_args()
    torch.set_num_threads(1)
    return check(args) if args.check else fsdp_main(args)


if __name__ == "__main__":
    sys.exit(main())
