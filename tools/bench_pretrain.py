"""PyTorch's side of tools/bench_pretrain.sh: T5's span corruption mixed with pairs, on the CPU.

usage: torchrun --nproc_per_node=2 tools/bench_pretrain.py --model DIR --text FILE --pairs SHARE:FILE.csv ...

FSDP2 over gloo, eager or compiled: each block and the root are sharded, master weights are float32,
blocks compute in bfloat16 (--dtype fp32: in float32), gradients are clipped at 1, and AdamW is
PyTorch's fused one. DIR has config.json and spiece.model; transformers makes the initial weights. Rows
are those of `fsdp train --task span-corruption --mix-data seq2seq:...`, drawn with the same
probabilities, in another order. Everything is tokenized before the first step, so this side's times
do not include it. A batch is padded to its longest row. Rank 0 prints one JSON line; its speed is that
of the steps after the first two. tokens are those of inputs and targets without padding; gflop is
counted for them as in Note [Model FLOP utilization] in bench.h.
"""
import argparse
import csv
import json
import pathlib
import time

import numpy
import sentencepiece
import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import T5Config, T5ForConditionalGeneration

PAD, EOS, IGNORE = 0, 1, -100
DENSITY, MEAN_SPAN = 0.15, 3


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="folder with config.json and spiece.model")
    parser.add_argument("--text", required=True, help="a document a line")
    parser.add_argument("--pairs", nargs="*", default=[], help="share of the rows, and CSV with the columns text and headline")
    parser.add_argument("--length", type=int, default=512, help="of inputs, in tokens")
    parser.add_argument("--target-length", type=int, default=100, help="of a pair's target at most")
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compile", action="store_true", help="model.compile() after fully_shard")
    return parser.parse_args()


# --- rows ---

def segments(total, parts, rng):
    """Lengths of `parts` segments of `total` tokens, where every way to cut is equally likely."""
    cuts = numpy.sort(rng.choice(total - 1, parts - 1, replace=False)) + 1
    return numpy.diff(numpy.concatenate([[0], cuts, [total]]))


def piece_length(inputs):
    """Length of a piece of text that becomes `inputs` tokens, its number of noise tokens and of spans."""
    for piece in range(2, 2 * inputs):
        noise = max(1, min(round(piece * DENSITY), piece - 1))
        spans = max(1, round(min(noise, piece - noise) / MEAN_SPAN))
        if piece - noise + spans + 1 == inputs:
            found = piece, noise, spans
    return found


def corrupt(piece, noise, spans, first_sentinel, rng):
    kept, taken = segments(len(piece) - noise, spans, rng), segments(noise, spans, rng)
    inputs, targets, at = [], [], 0
    for i, (keep, take) in enumerate(zip(kept, taken)):
        inputs += piece[at:at + keep] + [first_sentinel - i]
        targets += [first_sentinel - i] + piece[at + keep:at + keep + take]
        at += keep + take
    return inputs + [EOS], targets + [EOS]


def draw_rows(args, count, rng):
    """`count` rows: source and target ids."""
    tokenizer = sentencepiece.SentencePieceProcessor(str(pathlib.Path(args.model, "spiece.model")))
    vocabulary = json.loads(pathlib.Path(args.model, "config.json").read_text())["vocab_size"]
    with open(args.text, encoding="utf-8") as file:
        ids = [id for line in file for id in tokenizer.encode(line.rstrip("\n")) + [EOS]]
    length, noise, spans = piece_length(args.length)
    shares, pairs = [], []
    for source in args.pairs:
        share, path = source.split(":", 1)
        shares.append(float(share))
        with open(path, encoding="utf-8-sig", newline="") as file:
            pairs.append(list(csv.DictReader(file)))
    rows = []
    for chosen in rng.choice(len(pairs) + 1, count, p=[*shares, 1 - sum(shares)]):
        if chosen < len(pairs):
            pair = pairs[chosen][rng.integers(len(pairs[chosen]))]
            source = tokenizer.encode("summarize: " + pair["text"])[:args.length - 1] + [EOS]
            rows.append((source, tokenizer.encode(pair["headline"])[:args.target_length - 1] + [EOS]))
        else:
            first = rng.integers(len(ids) // length) * length
            rows.append(corrupt(ids[first:first + length], noise, spans, vocabulary - 1, rng))
    return rows


def collate(rows):
    sources, targets = zip(*rows)
    source, target = max(map(len, sources)), max(map(len, targets))
    return dict(
        input_ids=torch.tensor([ids + [PAD] * (source - len(ids)) for ids in sources]),
        attention_mask=torch.tensor([[1] * len(ids) + [0] * (source - len(ids)) for ids in sources]),
        labels=torch.tensor([ids + [IGNORE] * (target - len(ids)) for ids in targets]))


def work(config, rows):
    """Floating point operations of forward and backward."""
    d, wide, ff = config.d_model, config.num_heads * config.d_kv, config.d_ff
    ff *= 3 if config.is_gated_act else 2
    encoder = config.num_layers * (4 * d * wide + d * ff)
    decoder = config.num_decoder_layers * (6 * d * wide + d * ff) + d * config.vocab_size
    cross = config.num_decoder_layers * 2 * d * wide
    total = 0
    for source, target in ((len(s), len(t)) for s, t in rows):
        pairs = config.num_layers * source ** 2 + config.num_decoder_layers * (target ** 2 / 2 + source * target)
        total += 6 * (source * (encoder + cross) + target * decoder) + 12 * wide * pairs
    return total


# --- training ---

def build(args):
    config = T5Config.from_pretrained(args.model, use_cache=False)
    config.dropout_rate = 0.0
    torch.manual_seed(args.seed)
    model = T5ForConditionalGeneration(config).train()
    policy = MixedPrecisionPolicy()
    if args.dtype == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in [m for m in model.modules() if type(m).__name__ == "T5Block"]:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    if args.compile:
        model.compile()
    return model


def train_step(model, optimizer, batch):
    loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def total_over_ranks(value):
    total = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(total)
    return total.item()


def main():
    args = parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rng = numpy.random.default_rng([args.seed, dist.get_rank()])
    rows = draw_rows(args, args.steps * args.batch, rng)
    model = build(args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    for step, first in enumerate(range(0, len(rows), args.batch)):
        if step == 2:
            begin = time.perf_counter()
        loss = train_step(model, optimizer, collate(rows[first:first + args.batch]))
    seconds = time.perf_counter() - begin
    counted = rows[2 * args.batch:]
    tokens = total_over_ranks(sum(len(s) + len(t) for s, t in counted))
    flops = total_over_ranks(work(model.config, counted))
    loss = total_over_ranks(loss) / dist.get_world_size()
    if dist.get_rank() == 0:
        print(json.dumps(dict(
            program=f"torch {torch.__version__}", compiled=args.compile, dtype=args.dtype,
            batch=args.batch, steps=args.steps, tokens_per_s=round(tokens / seconds, 1),
            gflop_per_token=flops / tokens / 1e9, last_loss=loss)))
    dist.barrier()  # a rank that exits early breaks the connections of the others
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
