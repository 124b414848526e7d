#!/usr/bin/env python3
"""Check that fsdp.c and PyTorch's FSDP2 continue each other's runs from checkpoints.

usage: tools/check_dcp.py [--fsdp build/fsdp] [--types llama,gpt2,t5,bert]
       [--optimizers adamw,sgd,adafactor] [--ranks N] [--read-ranks M]

For each type transformers makes a tiny model. `fsdp train` takes a few steps on N ranks and writes a
checkpoint (DCP) in the middle. An FSDP2 model with the same optimizer over gloo on M ranks loads it
with torch.distributed.checkpoint into get_state_dict() and takes the remaining steps. The losses must
be those of `fsdp train`. Then the other way round: FSDP2 on N ranks saves, `fsdp train --resume`
continues on M. transformers' Adafactor does not accept DTensors; in that case PyTorch's side is one
process with an unsharded model, which still uses files of torch.distributed.checkpoint. Needs torch
and transformers; the tests do not need this script. The exit code is not 0 if anything differs.

PyTorch's ranks are processes that run one training after another, because starting them, with the
imports of torch and transformers, takes longer than all steps together.
"""
import argparse
import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
import transformers as hf
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from transformers.optimization import Adafactor

STEPS, MIDDLE, ROWS, GLOBAL_BATCH, LR, CLASSES = 8, 4, 96, 12, 2e-3, 3
TOLERANCE = 2e-5  # of a loss, relative
CONFIGS = {
    "llama": (hf.LlamaForCausalLM, lambda: hf.LlamaConfig(
        vocab_size=131, hidden_size=36, intermediate_size=51, num_hidden_layers=3,
        num_attention_heads=6, num_key_value_heads=3, max_position_embeddings=64)),
    "gpt2": (hf.GPT2LMHeadModel, lambda: hf.GPT2Config(
        vocab_size=131, n_positions=64, n_embd=36, n_layer=2, n_head=6, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2)),
    "t5": (hf.T5ForConditionalGeneration, lambda: hf.T5Config(
        vocab_size=131, d_model=36, d_kv=7, d_ff=51, num_layers=2, num_heads=5, dropout_rate=0.0,
        relative_attention_num_buckets=8, relative_attention_max_distance=20,
        decoder_start_token_id=0)),
    "bert": (hf.BertForSequenceClassification, lambda: hf.BertConfig(
        vocab_size=131, hidden_size=36, intermediate_size=51, num_hidden_layers=2,
        num_attention_heads=6, max_position_embeddings=64, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, num_labels=CLASSES)),
}


# How PyTorch makes each optimizer, and the options of `fsdp train` for the same.
OPTIMIZERS = {
    "adamw": (lambda params: torch.optim.AdamW(params, lr=LR, weight_decay=0.01),
              ("--optimizer", "adamw", "--weight-decay", 0.01)),
    "sgd": (lambda params: torch.optim.SGD(params, lr=LR, momentum=0.9),
            ("--optimizer", "sgd", "--momentum", 0.9, "--weight-decay", 0)),
    "adafactor": (lambda params: Adafactor(params, lr=LR, scale_parameter=False,
                                           relative_step=False, warmup_init=False),
                  ("--optimizer", "adafactor", "--weight-decay", 0)),
}
UNSHARDED = {"adafactor"}  # in PyTorch


def rows(kind):
    """Rows of equal length: the mean over ranks is the mean over labels."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(3, 131, (ROWS, 17), generator=generator).tolist()
    labels = torch.randint(3, 131, (ROWS, 9), generator=generator).tolist()
    if kind == "bert":
        return [{"input_ids": i, "label": l[0] % CLASSES} for i, l in zip(ids, labels)]
    return [{"input_ids": i, "labels": l} if kind == "t5" else {"input_ids": i}
            for i, l in zip(ids, labels)]


def labels_of(row):
    return row.get("label", row.get("labels", row["input_ids"]))


def blocks(model):
    names = ("LlamaDecoderLayer", "GPT2Block", "T5Block", "BertLayer")
    return [m for m in model.modules() if type(m).__name__ in names]


def train(rank, world, kind, optimizer_name, folder, first, last, load, save):
    """One rank of FSDP2: steps [first, last), after loading and before saving a checkpoint."""
    torch.manual_seed(0)
    model = CONFIGS[kind][0].from_pretrained(folder, attn_implementation="eager").train()
    if optimizer_name not in UNSHARDED:
        for block in blocks(model):
            fully_shard(block)
        fully_shard(model)
    optimizer = OPTIMIZERS[optimizer_name][0](model.parameters())
    if load:
        model_state, optim_state = get_state_dict(model, optimizer)
        state = {"model": model_state, "optim": optim_state}
        dcp.load(state, checkpoint_id=load)
        set_state_dict(model, optimizer, model_state_dict=state["model"],
                       optim_state_dict=state["optim"])
    data, share, losses = rows(kind), GLOBAL_BATCH // world, []
    for step in range(first, last):
        begin = step * GLOBAL_BATCH + rank * share
        ids = [data[i % ROWS] for i in range(begin, begin + share)]
        x = torch.tensor([row["input_ids"] for row in ids])
        y = torch.tensor([labels_of(row) for row in ids])
        loss = model(input_ids=x, labels=y).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / world)
    if save:
        model_state, optim_state = get_state_dict(model, optimizer)
        dcp.save({"model": model_state, "optim": optim_state}, checkpoint_id=save)
    dist.barrier()
    return losses


def serve(rank, world, port, jobs, results):
    """A rank that runs trainings until it gets None."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    while (job := jobs.get()) is not None:
        losses = train(rank, world, *job)
        if rank == 0:
            results.put(losses)
    dist.destroy_process_group()


class Ranks:
    """`world` processes of PyTorch, which are started by the first training."""

    def __init__(self, world, port):
        context = mp.get_context("spawn")
        self.jobs, self.results = [context.Queue() for _ in range(world)], context.Queue()
        self.processes = [context.Process(target=serve, args=(rank, world, port, self.jobs[rank],
                                                              self.results), daemon=True)
                          for rank in range(world)]
        for process in self.processes:
            process.start()

    def losses(self, *job):
        for jobs in self.jobs:
            jobs.put(job)
        while True:
            try:
                return self.results.get(timeout=1)
            except queue.Empty:
                if not all(process.is_alive() for process in self.processes):
                    sys.exit("a process of PyTorch has ended; its error is above")

    def end(self):
        for jobs in self.jobs:
            jobs.put(None)
        for process in self.processes:
            process.join()


RANKS = {}  # by their number


def torch_losses(kind, optimizer, work, world, first, last, port, load=None, save=None):
    if world not in RANKS:
        RANKS[world] = Ranks(world, port + world)
    return RANKS[world].losses(kind, optimizer, work / "model", first, last, load, save)


def fsdp_losses(program, optimizer, work, world, *more):
    metrics = work / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    command = [program, "launch", "-n", str(world), "train", "--model", work / "model", "--data",
               work / "rows.jsonl", "--no-save-model", "--no-shuffle", "--batch-size",
               str(GLOBAL_BATCH // world), "--epochs", "1", "--max-steps", str(STEPS), "--lr",
               str(LR), "--lr-schedule", "constant", "--num-workers", "0", "--metrics", metrics,
               *OPTIMIZERS[optimizer][1], *more]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    lines = map(json.loads, metrics.read_text().splitlines())
    return [line["loss"] for line in lines if line["kind"] == "step"]


def compare(name, got, want):
    apart = max(abs(a - b) / abs(b) for a, b in zip(got, want))
    good = len(got) == len(want) and apart <= TOLERANCE
    print(f"{name}: {len(got)} losses, largest relative difference {apart:.2g}: {'ok' if good else 'FAIL'}")
    return good


def check(kind, optimizer, program, ranks, read_ranks, port):
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        torch.manual_seed(1)
        model_class, config = CONFIGS[kind]
        model_class(config()).save_pretrained(work / "model")
        (work / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(kind)))
        ours = fsdp_losses(program, optimizer, work, ranks, "--save-steps", MIDDLE, "--checkpoint-dir", work / "ours")
        there, read_there = (1, 1) if optimizer in UNSHARDED else (ranks, read_ranks)
        theirs = torch_losses(kind, optimizer, work, read_there, MIDDLE, STEPS, port,
                              load=work / "ours" / f"checkpoint-{MIDDLE}")
        good = compare(f"{kind}, {optimizer}: ours on {ranks} ranks, continued by PyTorch on {read_there}",
                       theirs, ours[MIDDLE:])
        first = torch_losses(kind, optimizer, work, there, 0, MIDDLE, port, save=work / "theirs")
        whole = torch_losses(kind, optimizer, work, there, 0, STEPS, port)
        good &= compare(f"{kind}, {optimizer}: both from the beginning", ours, whole)
        good &= compare(f"{kind}, {optimizer}: PyTorch up to the checkpoint", first, whole[:MIDDLE])
        counts = ("--resume-step", MIDDLE) if optimizer == "sgd" else ()
        resumed = fsdp_losses(program, optimizer, work, read_ranks, "--resume", work / "theirs", *counts)
        good &= compare(f"{kind}, {optimizer}: PyTorch on {there} ranks, continued here on {read_ranks}",
                        resumed, whole[MIDDLE:])
        return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fsdp", default="build/fsdp")
    parser.add_argument("--types", default=",".join(CONFIGS))
    parser.add_argument("--optimizers", default=",".join(OPTIMIZERS))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--read-ranks", type=int, default=2)
    parser.add_argument("--port", type=int, default=29610)
    options = parser.parse_args()
    program = str(pathlib.Path(options.fsdp).resolve())
    cases = [(kind, optimizer) for kind in options.types.split(",")
             for optimizer in options.optimizers.split(",")]
    good = [check(*case, program, options.ranks, options.read_ranks, options.port)
            for case in cases]
    for ranks in RANKS.values():
        ranks.end()
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
