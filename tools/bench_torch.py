"""PyTorch's side of `fsdp bench train`: FSDP2 over gloo on the CPU, eager or compiled, with
transformers' models.

usage: torchrun --nproc_per_node=2 tools/bench_torch.py --shape t5-small --dtype bf16 --batch 4 \\
           --seq 512 --target 128 --steps 6

The same work: weights and tokens are random, each block and the root are sharded, masters are
float32, gradients are clipped at 1.0, AdamW is PyTorch's fused one. Rank 0 prints one JSON line;
first_step_after_s counts from the start of the script, after Python itself has started.
peak_host_mib is the largest sum of PSS over the ranks and their launcher, sampled 5 times a second
during two further steps that nobody times.
"""
import argparse
import json
import os
import resource
import statistics
import threading
import time

START = time.time()

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import (BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel,
                          LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration)

T5 = dict(vocab_size=32128, dropout_rate=0.0, decoder_start_token_id=0)
LLAMA = dict(vocab_size=32000, max_position_embeddings=2048)


def t5(**shape):
    return T5Config(**T5, **shape), T5ForConditionalGeneration


def llama(layers, heads, **shape):
    return LlamaConfig(**LLAMA, num_hidden_layers=layers, num_attention_heads=heads,
                       num_key_value_heads=heads, **shape), LlamaForCausalLM


SHAPES = {
    "t5-small": lambda: t5(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8),
    "t5-base": lambda: t5(d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12),
    "llama-58m": lambda: llama(8, 8, hidden_size=512, intermediate_size=1376),
    "llama-134m": lambda: llama(12, 12, hidden_size=768, intermediate_size=2048),
    "gpt2": lambda: (GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0), GPT2LMHeadModel),
    "bert-base-uncased": lambda: (BertConfig(hidden_dropout_prob=0, attention_probs_dropout_prob=0),
                                  BertForSequenceClassification),
}
BLOCKS = ("T5Block", "LlamaDecoderLayer", "GPT2Block", "BertLayer")


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", choices=SHAPES, default="t5-small")
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--target", type=int, default=128)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads-per-rank", type=int, default=1)
    parser.add_argument("--compile", action="store_true", help="model.compile() after fully_shard")
    return parser.parse_args()


def build(args):
    config, model_class = SHAPES[args.shape]()
    config.use_cache = False
    model = model_class(config).train()
    policy = MixedPrecisionPolicy()
    if args.dtype == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in [m for m in model.modules() if type(m).__name__ in BLOCKS]:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    if args.compile:
        model.compile()
    return model


def draw_batch(args, config, draw):
    ids = torch.randint(2, config.vocab_size, (args.batch, args.seq), generator=draw)
    if config.model_type == "t5":
        labels = torch.randint(2, config.vocab_size, (args.batch, args.target), generator=draw)
    elif config.model_type == "bert":
        labels = torch.randint(0, config.num_labels, (args.batch,), generator=draw)
    else:
        labels = ids
    return dict(input_ids=ids, labels=labels)


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


def pss_mib(pids):
    kib = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            kib += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
    return kib / 1024


class PeakMemory(threading.Thread):
    """Samples the host memory of processes until stop()."""

    def __init__(self, pids):
        super().__init__(daemon=True)
        self.pids, self.peak_mib, self.ended = pids, 0, threading.Event()

    def run(self):
        while not self.ended.is_set():
            self.peak_mib = max(self.peak_mib, pss_mib(self.pids))
            self.ended.wait(0.2)

    def stop(self):
        self.ended.set()
        self.join()
        return self.peak_mib


def peak_of(steps):
    """Of all ranks and their launcher while steps() runs; None but on rank 0."""
    pids = [None] * dist.get_world_size()
    dist.all_gather_object(pids, os.getpid())
    sampler = PeakMemory(pids + [os.getppid()]) if dist.get_rank() == 0 else None
    if sampler:
        sampler.start()
    steps()
    dist.barrier()
    return sampler and sampler.stop()


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
        batch = draw_batch(args, model.config, draw)
        begin = time.perf_counter()
        losses.append(train_step(model, optimizer, batch))
        seconds.append(time.perf_counter() - begin)
        if first_step_after_s is None:
            first_step_after_s = time.time() - START
            used = processor_s()
    used = (processor_s() - used) / (args.steps - 1)
    peak_mib = peak_of(lambda: [train_step(model, optimizer, draw_batch(args, model.config, draw))
                                for _ in range(2)])
    if rank == 0:
        step_s = statistics.median(seconds[1:])
        target = args.target if args.shape.startswith("t5") else 0
        tokens = args.batch * (args.seq + target) * ranks
        print(json.dumps(dict(
            program=f"torch {torch.__version__}", compiled=args.compile, shape=args.shape, dtype=args.dtype, ranks=ranks,
            threads_per_rank=args.threads_per_rank, batch=args.batch, seq=args.seq,
            target=target, steps=args.steps, step_s=round(step_s, 3),
            tok_per_s=round(tokens / step_s, 1), first_step_after_s=round(first_step_after_s, 2),
            processor=round(used, 3),
            peak_host_mib=round(peak_mib, 1), first_loss=losses[0], last_loss=losses[-1])))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
