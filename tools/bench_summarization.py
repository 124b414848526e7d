"""PyTorch's side of tools/bench_summarization.sh: fine-tuning T5 for summarization as the FSDP
tutorial does it, on the CPU.

usage: torchrun --nproc_per_node=2 tools/bench_summarization.py --model DIR --data FILE.csv

FullyShardedDataParallel over gloo, T5Block by T5Block; parameters, gradients and buffers in bfloat16
(--dtype fp32: in float32); sources padded to 512 tokens and targets to 150; AdamW without clipping.
Unlike the tutorial, the padding of targets is masked and dropout is that of config.json, so the loss
is the one of `fsdp train`. Rows are in the order of its --sampler distributed. They are tokenized
before the first step, so this side's times do not include it. Rank 0 prints one JSON line;
samples_per_s is that of the steps after the first.
"""
import argparse
import csv
import functools
import json
import time

import sentencepiece
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5Block

from torch_t5_wikihow import EOS, IGNORE, PAD, clean_text, distributed, epoch_order

SOURCE, TARGET = 512, 150


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokenizer", required=True, help="spiece.model")
    parser.add_argument("--data", required=True, help="CSV with the columns text and headline")
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def load_rows(args):
    """Source and target ids of the rows that this rank sees, in their order."""
    tokenizer = sentencepiece.SentencePieceProcessor(args.tokenizer)
    with open(args.data, encoding="utf-8-sig", newline="") as file:
        texts = [(clean_text(row["text"]), clean_text(row["headline"])) for row in csv.DictReader(file)]
    order = distributed(epoch_order(len(texts), args.seed, 0), dist.get_rank(), dist.get_world_size())
    if len(order) < args.steps * args.batch:
        raise SystemExit(f"{args.data}: {len(texts)} rows are too few for {args.steps} steps")
    return [[tokenizer.encode(text)[:length - 1] + [EOS]
             for text, length in zip(texts[i], (SOURCE, TARGET))]
            for i in order[:args.steps * args.batch]]


def collate(rows):
    source = torch.tensor([ids + [PAD] * (SOURCE - len(ids)) for ids, _ in rows])
    mask = torch.tensor([[1] * len(ids) + [0] * (SOURCE - len(ids)) for ids, _ in rows])
    labels = torch.tensor([ids + [IGNORE] * (TARGET - len(ids)) for _, ids in rows])
    return dict(input_ids=source, attention_mask=mask, labels=labels)


def build(args):
    model = T5ForConditionalGeneration.from_pretrained(args.model, dtype=torch.float32)
    model.config.use_cache = False
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={T5Block})
    half = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16,
                          buffer_dtype=torch.bfloat16)
    return FSDP(model.train(), auto_wrap_policy=policy, device_id=torch.device("cpu"),
                mixed_precision=half if args.dtype == "bf16" else None)


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = model(**batch)["loss"]
    loss.backward()
    optimizer.step()
    return loss.item()


def mean_over_ranks(value):
    total = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def main():
    args = parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rows = load_rows(args)
    model = build(args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    losses, begin = [], None
    for first in range(0, len(rows), args.batch):
        losses.append(train_step(model, optimizer, collate(rows[first:first + args.batch])))
        if begin is None:  # the first step allocates what later steps reuse
            begin = time.perf_counter()
    seconds = time.perf_counter() - begin
    losses = [mean_over_ranks(loss) for loss in losses]
    samples = (len(rows) - args.batch) * dist.get_world_size()
    sources, targets = (mean_over_ranks(sum(map(len, side)) / len(rows)) for side in zip(*rows))
    if dist.get_rank() == 0:
        print(json.dumps(dict(
            program=f"torch {torch.__version__}", dtype=args.dtype, batch=args.batch,
            steps=args.steps, samples_per_s=round(samples / seconds, 3),
            first_loss=losses[0], last_loss=losses[-1], source_tokens=round(sources, 1),
            target_tokens=round(targets, 1))))
    dist.barrier()  # a rank that exits early breaks the connections of the others
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
