"""PyTorch's side of `make gpu-check`: FSDP2 on one card, eager or compiled, with transformers'
models.

usage: python3 tools/bench_gpu.py [--compile] [--steps 12] SHAPE:BATCH:SEQ:TARGET...

SHAPE is a folder with a config.json, the same that `fsdp bench train --shape` reads. The work is
the same, too: random weights and tokens, each block and the root sharded, bf16 with float32 master
weights and gradients, gradients clipped at 1.0, PyTorch's fused AdamW. All shapes run in this one
process, so that PyTorch starts once. Each prints one JSON line when it is done, or a line with
"error".

A step is measured as `fsdp bench train` does: from forward until the card has ended its kernels,
the median without the first three. start_s is the time that PyTorch takes to start (from START in the
environment, seconds since 1970, or from the start of this script), and first_step_after_s is this
time plus the time from the beginning of this shape to the end of its first step: what a process of
its own would take.

--device cpu runs on the CPU over gloo, and --pretend prints figures that are made up, without
PyTorch: both only show that the script works.
"""
import argparse
import gc
import json
import os
import statistics
import sys
import time

START = float(os.environ.get("START", time.time()))
BLOCKS = ("T5Block", "LlamaDecoderLayer", "GPT2Block", "BertLayer")
WARM_UP = 3


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("work", nargs="+", metavar="SHAPE:BATCH:SEQ:TARGET")
    parser.add_argument("--compile", action="store_true", help="block.compile() before fully_shard")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--pretend", action="store_true")
    return parser.parse_args()


def report(shape, args, figures):
    line = dict(shape=os.path.basename(shape), compiled=args.compile, **figures)
    print(json.dumps(line), flush=True)


def start(args):
    import torch
    import torch.distributed as dist
    import transformers  # noqa: F401, which belongs to start_s

    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29531")
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    if args.device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo")


def build(shape, args):
    import torch
    import transformers
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    config = transformers.AutoConfig.from_pretrained(shape)
    config.use_cache = False
    torch.manual_seed(0)
    torch.set_default_device(args.device)
    model = getattr(transformers, config.architectures[0])(config).train()
    torch.set_default_device("cpu")
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = init_device_mesh(args.device, (1,))
    blocks = [m for m in model.modules() if type(m).__name__ in BLOCKS]
    for block in blocks:
        if args.compile:
            block.compile()
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def draw_batch(model, args, batch, seq, target, generator):
    import torch

    def draw(low, high, *shape):
        return torch.randint(low, high, shape, generator=generator, device=args.device)

    config = model.config
    ids = draw(2, config.vocab_size, batch, seq)
    if config.model_type == "t5":
        return dict(input_ids=ids, labels=draw(2, config.vocab_size, batch, target))
    if config.model_type == "bert":
        return dict(input_ids=ids, labels=draw(0, config.num_labels, batch))
    return dict(input_ids=ids, labels=ids)


def synchronize(args):
    import torch

    if args.device == "cuda":
        torch.cuda.synchronize()


def train_step(model, optimizer, batch):
    import torch

    loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss


def measure(shape, batch, seq, target, args, start_s):
    import torch

    begin = time.time()
    model = build(shape, args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    generator = torch.Generator(device=args.device).manual_seed(1)
    seconds, losses, first = [], [], None
    for _ in range(args.steps):
        rows = draw_batch(model, args, batch, seq, target, generator)
        synchronize(args)
        step_begin = time.perf_counter()
        loss = train_step(model, optimizer, rows)
        synchronize(args)
        seconds.append(time.perf_counter() - step_begin)
        losses.append(loss.item())
        if first is None:
            first = start_s + time.time() - begin
    step_s = statistics.median(seconds[WARM_UP:])
    figures = dict(batch=batch, seq=seq, target=target,
                   parameters=sum(p.numel() for p in model.parameters()),
                   step_s=round(step_s, 6), min_step_s=round(min(seconds[WARM_UP:]), 6),
                   tok_per_s=round(batch * (seq + target) / step_s),
                   first_step_after_s=round(first, 3), start_s=round(start_s, 3),
                   first_loss=round(losses[0], 4), last_loss=round(losses[-1], 4))
    if args.device == "cuda":
        figures["peak_allocated_mib"] = torch.cuda.max_memory_allocated() >> 20
        figures["peak_reserved_mib"] = torch.cuda.max_memory_reserved() >> 20
    return figures


def release(args):
    """Give the memory of a shape back, so that the next one's peak is its own."""
    import torch

    gc.collect()
    if args.compile:
        torch._dynamo.reset()
    if args.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def pretend(args):
    for work in args.work:
        shape, batch, seq, target = work.rsplit(":", 3)
        report(shape, args, dict(batch=int(batch), seq=int(seq), target=int(target), step_s=1.0,
                                 first_step_after_s=9.0, peak_allocated_mib=1000, pretended=True))


def main():
    args = parse_args()
    if args.pretend:
        return pretend(args)
    if args.steps <= WARM_UP:
        sys.exit(f"bench_gpu: --steps must be more than {WARM_UP}")
    start(args)
    start_s = time.time() - START
    for work in args.work:
        shape, batch, seq, target = work.rsplit(":", 3)
        try:
            report(shape, args, measure(shape, int(batch), int(seq), int(target), args, start_s))
        except Exception as error:  # the other shapes run all the same
            report(shape, args, dict(error=f"{type(error).__name__}: {error}"[:300]))
        release(args)

    import torch.distributed as dist

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
