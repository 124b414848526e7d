#!/usr/bin/env python3
"""Compare the loss curves of AdamW in 8 bits with those of AdamW: here, in torchao and in bitsandbytes.

usage: tools/check_adamw_8bit.py [--fsdp build/fsdp] [--seeds 5] [--steps 500] [--hidden 128] [--layers 4] [--curves FILE]

A small Llama learns the bytes of data/debian/train.csv, 8 rows of 32 bytes a step. For each seed, which chooses the
first weights and the rows, `fsdp train` and PyTorch start from the same weights and read the same rows:

    fsdp     AdamW; AdamW with --lr times 1.0001; AdamW in 8 bits
    PyTorch  torch.optim.AdamW; the same with the rate times 1.0001; torchao's AdamW8bit (without torch.compile);
             bitsandbytes' AdamW8bit (on the CPU); the same with embeddings in 32 bits, as transformers' Trainer uses it

Each curve is compared with that of AdamW in the same program and with the same seed. A curve is the means of 20
steps. The table has, for each optimizer: the mean difference over all windows and seeds, with its standard error
(from the differences between seeds); the largest difference of a window after the mean over seeds; and the largest
difference of any window of any seed. The rows of the changed rate say how far a change moves a curve that has nothing
to do with 8 bits.

--curves FILE keeps the losses of all runs in a file, and runs that are in the file already are not repeated.

The exit code is not 0 if AdamW in 8 bits here is further from AdamW than torchao's is, by more than three standard errors.
Needs torch, torchao, bitsandbytes, transformers; the tests do not need this script.
"""
import argparse
import csv
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import bitsandbytes
import torch
import transformers as hf
from torchao.optim.adam import single_param_adam
from torchao.optim.subclass_8bit import OptimState8bit

BATCH, LENGTH, WINDOW = 8, 32, 20
RATE, DECAY, WARMUP, CLIP = 0.001, 0.1, 20, 1.0


class Torchao8bit(torch.optim.Optimizer):
    """torchao.optim.AdamW8bit without torch.compile."""
    def __init__(self, parameters, lr, weight_decay):
        super().__init__(parameters, dict(lr=lr, weight_decay=weight_decay))
        self.steps = torch.tensor(0.0)

    @torch.no_grad()
    def step(self):
        self.steps += 1
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                narrow = p.numel() >= 4096 and p.numel() % 256 == 0  # _AdamBase._new_buffer
                for name, signed in (("exp_avg", True), ("exp_avg_sq", False)):
                    if name not in state:
                        state[name] = OptimState8bit.zeros(p.shape, signed=signed) if narrow else torch.zeros_like(p)
                single_param_adam(p, p.grad, self.steps, state["exp_avg"], state["exp_avg_sq"], None,
                                  torch.tensor(group["lr"]), 0.9, 0.999, group["weight_decay"], 1e-8, IS_ADAMW=True,
                                  BF16_STOCHASTIC_ROUND=False)


def adamw(model, rate):
    return torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=DECAY)


def torchao_8bit(model, rate):
    return Torchao8bit(model.parameters(), lr=rate, weight_decay=DECAY)


def bitsandbytes_8bit(model, rate):
    return bitsandbytes.optim.AdamW8bit(model.parameters(), lr=rate, weight_decay=DECAY)


def bitsandbytes_of_trainer(model, rate):
    """What transformers.Trainer does for --optim adamw_bnb_8bit."""
    manager = bitsandbytes.optim.GlobalOptimManager.get_instance()
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            manager.register_module_override(module, "weight", {"optim_bits": 32})
    optimizer = bitsandbytes_8bit(model, rate)
    optimizer.check_overrides()
    manager.module_weight_config_triple.clear()
    optimizer.initialized = True
    return optimizer


TORCH = {"AdamW": (adamw, 1.0), "AdamW, rate x 1.0001": (adamw, 1.0001), "torchao": (torchao_8bit, 1.0),
         "bitsandbytes": (bitsandbytes_8bit, 1.0),
         "bitsandbytes, embeddings in 32 bits": (bitsandbytes_of_trainer, 1.0)}
FSDP = {"AdamW": ("adamw", 1.0), "AdamW, rate x 1.0001": ("adamw", 1.0001), "adamw_8bit": ("adamw_8bit", 1.0)}


def text_bytes():
    with open("data/debian/train.csv", newline="") as f:
        return "\n".join(row["text"] for row in csv.DictReader(f)).encode()


def make_rows(text, seed, steps):
    at = random.Random(seed)
    return [list(text[i:i + LENGTH]) for i in (at.randrange(len(text) - LENGTH) for _ in range(steps * BATCH))]


def make_model(folder, args, seed):
    hf.set_seed(seed)
    config = hf.LlamaConfig(vocab_size=256, hidden_size=args.hidden, intermediate_size=4 * args.hidden,
                            num_hidden_layers=args.layers,
                            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=LENGTH,
                            bos_token_id=1, eos_token_id=2, tie_word_embeddings=False)
    hf.LlamaForCausalLM(config).float().save_pretrained(folder)


def run_fsdp(args, folder, rows, optimizer, factor):
    data, metrics = folder / "rows.jsonl", folder / "metrics.jsonl"
    data.write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in rows))
    metrics.unlink(missing_ok=True)
    subprocess.run([args.fsdp, "train", "--model", folder / "model", "--data", data, "--no-shuffle", "--batch-size",
                    str(BATCH), "--epochs", "1", "--optimizer", optimizer, "--lr", repr(RATE * factor),
                    "--weight-decay", str(DECAY), "--warmup-steps", str(WARMUP), "--lr-schedule", "constant",
                    "--max-grad-norm", str(CLIP), "--no-save-model", "--metrics", metrics, "--no-rank-metrics",
                    "--device", "cpu", "--threads-per-rank", "1"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [record["loss"] for record in records if record.get("event", "step") == "step" and "loss" in record]


def run_torch(folder, rows, create, factor):
    model = hf.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    optimizer = create(model, RATE * factor)
    losses = []
    for step in range(len(rows) // BATCH):
        ids = torch.tensor(rows[step * BATCH:(step + 1) * BATCH])
        for group in optimizer.param_groups:
            group["lr"] = RATE * factor * min(1.0, step / WARMUP)
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.item())
    return losses


def windows(losses):
    return [statistics.mean(losses[i:i + WINDOW]) for i in range(0, len(losses), WINDOW)]


def difference(curve, reference):
    return [100 * (a / b - 1) for a, b in zip(windows(curve), windows(reference))]


def summarize(program, name, per_seed):
    """Print a line of the table. Return the mean difference and its standard error."""
    means = [statistics.mean(d) for d in per_seed]
    mean = statistics.mean(means)
    error = statistics.stdev(means) / math.sqrt(len(means)) if len(means) > 1 else float("nan")
    over_seeds = [statistics.mean(d[w] for d in per_seed) for w in range(len(per_seed[0]))]
    print(f"{program:8} {name:36} {mean:+7.3f} +- {error:5.3f} {max(map(abs, over_seeds)):9.2f} "
          f"{max(abs(x) for d in per_seed for x in d):9.2f}", flush=True)
    return mean, error


def run_all(args, folder, text, curves):
    """Add the losses of all runs that are not in `curves` yet."""
    for seed in range(args.seeds):
        rows = make_rows(text, seed, args.steps)
        make_model(folder / "model", args, seed)
        for program, runs in (("fsdp", FSDP), ("PyTorch", TORCH)):
            for name, (optimizer, factor) in runs.items():
                key = f"{program}, {name}, seed {seed}"
                if key not in curves:
                    curves[key] = (run_fsdp(args, folder, rows, optimizer, factor) if program == "fsdp" else
                                   run_torch(folder, rows, optimizer, factor))
                    losses = curves[key]
                    print(f"{key}: {losses[0]:.6f}, last 50 steps {statistics.mean(losses[-50:]):.4f}", file=sys.stderr,
                          flush=True)
                    if args.curves:
                        args.curves.write_text(json.dumps(curves))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--fsdp", default="build/fsdp")
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--steps", type=int, default=500)
    p.add_argument("--hidden", type=int, default=128)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--curves", type=pathlib.Path)
    args = p.parse_args()
    torch.set_num_threads(1)
    curves = json.loads(args.curves.read_text()) if args.curves and args.curves.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        run_all(args, pathlib.Path(folder), text_bytes(), curves)
    print(f"{'':8} {'difference from AdamW in %':36} {'mean':>7}    {'error':>5} {'of means':>9} {'largest':>9}")
    results = {}
    for program, names in (("fsdp", FSDP), ("PyTorch", TORCH)):
        for name in names:
            if name != "AdamW":
                results[name] = summarize(program, name, [
                    difference(curves[f"{program}, {name}, seed {seed}"], curves[f"{program}, AdamW, seed {seed}"])
                    for seed in range(args.seeds)])
    (ours, error), (theirs, their_error) = results["adamw_8bit"], results["torchao"]
    return ours - theirs > 3 * math.hypot(error, their_error)


if __name__ == "__main__":
    sys.exit(main())
