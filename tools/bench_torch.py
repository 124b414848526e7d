"""PyTorch's side of `fsdp bench train`: FSDP2 over gloo on the CPU, eager, with transformers' T5.

usage: torchrun --nproc_per_node=2 tools/bench_torch.py --shape t5-small --dtype bf16 --batch 4 \\
           --seq 512 --target 128 --steps 6

The same work: weights and tokens are random, each T5Block and the root are sharded, masters are
float32, gradients are clipped at 1.0, AdamW is PyTorch's fused one. Rank 0 prints one JSON line;
first_step_after_s counts from the start of the script, after Python itself has started.
"""
import argparse
import json
import os
import resource
import statistics
import time

START = time.time()

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import T5Config, T5ForConditionalGeneration

SHAPES = {
    "t5-small": dict(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8),
    "t5-base": dict(d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12),
}


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", choices=SHAPES, default="t5-small")
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--target", type=int, default=128)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads-per-rank", type=int, default=1)
    return parser.parse_args()


def build(args):
    config = T5Config(vocab_size=32128, dropout_rate=0.0, decoder_start_token_id=0, use_cache=False,
                      **SHAPES[args.shape])
    model = T5ForConditionalGeneration(config).train()
    policy = MixedPrecisionPolicy()
    if args.dtype == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in [m for m in model.modules() if type(m).__name__ == "T5Block"]:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    return model


def train_step(model, optimizer, batch):
    loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def processor_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main():
    args = parse_args()
    torch.set_num_threads(args.threads_per_rank)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = build(args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    draw = torch.Generator().manual_seed(rank)
    seconds, losses, first_step_after_s = [], [], None
    for _ in range(args.steps):
        batch = dict(
            input_ids=torch.randint(2, 32128, (args.batch, args.seq), generator=draw),
            labels=torch.randint(2, 32128, (args.batch, args.target), generator=draw),
        )
        begin = time.perf_counter()
        losses.append(train_step(model, optimizer, batch))
        seconds.append(time.perf_counter() - begin)
        if first_step_after_s is None:
            first_step_after_s = time.time() - START
            used = processor_s()
    used = (processor_s() - used) / (args.steps - 1)
    peak_rss_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if rank == 0:
        step_s = statistics.median(seconds[1:])
        tokens = args.batch * (args.seq + args.target) * ranks
        print(json.dumps(dict(
            program=f"torch {torch.__version__}", shape=args.shape, dtype=args.dtype, ranks=ranks,
            threads_per_rank=args.threads_per_rank, batch=args.batch, seq=args.seq,
            target=args.target, steps=args.steps, step_s=round(step_s, 3),
            tok_per_s=round(tokens / step_s, 1), first_step_after_s=round(first_step_after_s, 2), processor=round(used, 3),
            rank_0_peak_rss_mib=round(peak_rss_mib), first_loss=losses[0], last_loss=losses[-1])))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
