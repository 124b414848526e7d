"""PyTorch's side of `fsdp bench train`: FSDP2 over gloo on the CPU, eager or compiled, with
transformers' models.

usage: torchrun --nproc_per_node=2 tools/bench_torch.py --model DIR --dtype bf16 --batch 4 \\
           --seq 512 --target 128 --steps 6

It does the same work: DIR has the initial weights that `fsdp bench train --save-model DIR` wrote, tokens
come from the same random numbers, each block and the root are sharded, master weights are float32,
gradients are clipped at 1.0, and AdamW is PyTorch's fused one. So losses agree except for rounding.
Rank 0 prints one JSON line; first_step_after_s counts from BENCH_START in the environment (seconds
since 1970), or from the start of this script.
"""
import argparse
import json
import os
import resource
import statistics
import time

START = float(os.environ.get("BENCH_START", time.time()))

import numpy
import torch
import torch.distributed as dist
import transformers
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

BLOCKS = ("T5Block", "LlamaDecoderLayer", "GPT2Block", "BertLayer")


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="folder of fsdp bench train --save-model")
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--target", type=int, default=128)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1, help="of the tokens")
    parser.add_argument("--threads-per-rank", type=int, default=1)
    parser.add_argument("--interface", help="count the bytes that this network interface sends, e.g. eth0")
    parser.add_argument("--compile", action="store_true", help="model.compile() after fully_shard")
    return parser.parse_args()


def build(args):
    config = transformers.AutoConfig.from_pretrained(args.model)
    config.use_cache = False
    model_class = getattr(transformers, config.architectures[0])
    model = model_class.from_pretrained(args.model, config=config, dtype=torch.float32).train()
    policy = MixedPrecisionPolicy()
    if args.dtype == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in [m for m in model.modules() if type(m).__name__ in BLOCKS]:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    if args.compile:
        model.compile()
    return model


# --- the random tokens of src/bench/bench.c ---

def philox(key, low, high):
    """The first word of Philox4x32-10 at the counters (low, high), an array."""
    mask = numpy.uint64(0xFFFFFFFF)
    shift = numpy.uint64(32)
    c2, c3 = high & mask, high >> shift
    c0, c1 = numpy.full_like(c2, low & 0xFFFFFFFF), numpy.full_like(c2, low >> 32)
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = c0 * numpy.uint64(0xD2511F53), c2 * numpy.uint64(0xCD9E8D57)
        c0, c2 = (p1 >> shift) ^ c1 ^ numpy.uint64(k0), (p0 >> shift) ^ c3 ^ numpy.uint64(k1)
        c1, c3 = p1 & mask, p0 & mask
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0.astype(numpy.int64)


def draw_batch(args, config, step):
    leaf = step * dist.get_world_size() + dist.get_rank()
    labels = {"t5": args.target, "bert": 1}.get(config.model_type, 0)
    width = args.seq + labels
    drawn = philox(args.seed, leaf, numpy.arange(args.batch * width, dtype=numpy.uint64))
    drawn = torch.from_numpy(drawn).reshape(args.batch, width)
    ids = 2 + drawn % (config.vocab_size - 2)
    batch = dict(input_ids=ids[:, :args.seq].contiguous())
    if config.model_type == "t5":
        batch["labels"] = ids[:, args.seq:].contiguous()
    elif config.model_type == "bert":
        batch["labels"] = drawn[:, args.seq] % config.num_labels
    else:
        batch["labels"] = batch["input_ids"]
    return batch


def train_step(model, optimizer, batch):
    loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def sent_bytes(interface):
    if not interface:
        return 0
    with open(f"/sys/class/net/{interface}/statistics/tx_bytes") as file:
        return int(file.read())


def processor_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main():
    args = parse_args()
    torch.set_num_threads(args.threads_per_rank)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = build(args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    seconds, losses, first_step_after_s = [], [], None
    for step in range(args.steps):
        batch = draw_batch(args, model.config, step)
        begin = time.perf_counter()
        losses.append(train_step(model, optimizer, batch))
        seconds.append(time.perf_counter() - begin)
        if first_step_after_s is None:
            first_step_after_s = time.time() - START
            used, sent = processor_s(), sent_bytes(args.interface)
    sent = (sent_bytes(args.interface) - sent) / (args.steps - 1)
    used = (processor_s() - used) / (args.steps - 1)
    if rank == 0:
        step_s = statistics.median(seconds[1:])
        target = args.target if model.config.model_type == "t5" else 0
        tokens = args.batch * (args.seq + target) * ranks
        print(json.dumps(dict(
            program=f"torch {torch.__version__}", compiled=args.compile, dtype=args.dtype,
            ranks=ranks, threads_per_rank=args.threads_per_rank, batch=args.batch, seq=args.seq,
            target=target, steps=args.steps, step_s=round(step_s, 3),
            tok_per_s=round(tokens / step_s, 1), first_step_after_s=round(first_step_after_s, 2),
            processor=round(used, 3), host_sent_bytes=round(sent), first_loss=losses[0], last_loss=losses[-1])))
    dist.barrier()  # a rank that exits early breaks the connections of the others
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
