#!/usr/bin/env python3
"""Check the Llama job, continual pretraining with the tutorial's arguments, against PyTorch.

usage: tools/check_llama_job.py --text FILE [--build build] [--steps 20] [--keep DIR]

transformers makes a small random Llama. Its tokens are the bytes of FILE, in rows of LENGTH, as JSON
lines in a folder with train.jsonl and validation.jsonl. PyTorch trains it on the rows in their
order: the loss of a step is the mean over the micro-batches of all ranks, gradients are clipped to
the norm 1, AdamW has the rate of half a cosine after a warmup. 'fsdp train' does the same with the
arguments of the tutorial and --no-shuffle on 1, 2 and 4 ranks. Losses of all steps and validation
losses must be equal within TOLERANCE. A run that is resumed from a checkpoint must continue with the
same losses. Needs torch and transformers; the tests do not need this script. The exit code is not 0
if anything differs.
"""
import argparse
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
import transformers as hf

LENGTH = 48
ACCUMULATION = 8  # micro-batches of all ranks in a step
LR, MIN_LR, WARMUP = 3e-3, 3e-4, 3
BETAS, DECAY, CLIP = (0.9, 0.95), 0.01, 1.0
EVALUATE = 5  # steps between validations
TOLERANCE = 5e-5


def write_rows(path, rows):
    path.write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in rows))


def make_data(folder, text, steps):
    """Rows of bytes for `steps` steps, and ten for validation."""
    data = pathlib.Path(text).read_bytes()
    count = steps * ACCUMULATION
    rows = [[1 + b for b in data[i * LENGTH:(i + 1) * LENGTH]] for i in range(count + 10)]
    if len(rows[-1]) < LENGTH:
        sys.exit(f"{text}: {(count + 10) * LENGTH} bytes are needed")
    folder.mkdir(exist_ok=True)
    write_rows(folder / "train.jsonl", rows[:count])
    write_rows(folder / "validation.jsonl", rows[count:])
    return rows[:count], rows[count:]


def make_model(folder):
    torch.manual_seed(1)
    config = hf.LlamaConfig(vocab_size=260, hidden_size=32, intermediate_size=80, num_hidden_layers=3,
                            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                            rope_theta=10000.0, bos_token_id=None, eos_token_id=None)
    hf.LlamaForCausalLM(config).save_pretrained(folder)


def rate(step, steps):
    """The tutorial's get_lr(), for the step that follows `step` others."""
    if step < WARMUP:
        return LR * step / WARMUP
    ratio = min(1.0, (step - WARMUP) / (steps - WARMUP))
    return MIN_LR + 0.5 * (1 + math.cos(math.pi * ratio)) * (LR - MIN_LR)


def reference(folder, rows, validation, steps):
    """The losses of all steps, and {step: validation loss}."""
    model = hf.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=BETAS, weight_decay=DECAY)
    losses, validations = [], {}
    for step in range(steps):
        total = 0.0
        for row in rows[step * ACCUMULATION:(step + 1) * ACCUMULATION]:
            ids = torch.tensor([row])
            loss = model(input_ids=ids, labels=ids).loss / ACCUMULATION
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
        if (step + 1) % EVALUATE == 0 or step + 1 == steps:
            with torch.no_grad():
                ids = torch.tensor(validation)
                validations[step + 1] = model(input_ids=ids, labels=ids).loss.item()
    return losses, validations


def arguments(ranks, steps, data, model):
    """The tutorial's arguments, in its spelling."""
    flags = {"train_data_dir": data, "model_name": model, "precision": "32-true",
             "auto_wrap_policy": "LlamaDecoderLayer", "sharding_strategy": "FULL_SHARD",
             "limit_all_gathers": True, "cpu_offload": False, "number_epochs": 1,
             "micro_batch_size": 1, "gradient_accumulation_steps": ACCUMULATION // ranks,
             "grad_clip": CLIP, "max_step": steps, "lr": LR, "min_lr": MIN_LR, "lr_decay": True,
             "warmup_steps": WARMUP, "weight_decay": DECAY, "beta1": BETAS[0], "beta2": BETAS[1],
             "eval_batch_size": 1, "eval_iters": 1000000, "eval_step_interval": EVALUATE}
    return [x for name, value in flags.items() for x in (f"--{name}", str(value))]


def call(command, folder):
    out = subprocess.run([str(x) for x in command], capture_output=True, text=True, cwd=folder)
    if out.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{out.stderr}")
    return out.stdout


def run_train(build, work, ranks, steps, more=()):
    """Run 'fsdp train'; return {step: loss} and {step: validation loss}."""
    metrics = work / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    call([build / "fsdp", "train", "--devices", ranks, "--tpu", False, "--state_dict_type", "full",
          "--save_step_interval", 7, *arguments(ranks, steps, work / "data", work / "model"),
          "--no-shuffle", "--output", work / "out", "--overwrite-output", "--metrics", metrics, *more],
         work)
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    of = lambda kind: {x["step"]: x["loss"] for x in lines if x.get("kind") == kind}
    return of("step"), of("validation")


def compare(name, expected, found):
    same = set(expected) == set(found)
    worst = max(abs(expected[k] - found.get(k, math.inf)) for k in expected)
    print(f"{name}: {len(found)} values, largest difference {worst:.2g}")
    return same and worst <= TOLERANCE


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True)
    parser.add_argument("--build", default="build")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--keep")
    args = parser.parse_args()
    torch.set_num_threads(1)
    build = pathlib.Path(args.build).resolve()
    work = pathlib.Path(args.keep or tempfile.mkdtemp()).resolve()
    work.mkdir(parents=True, exist_ok=True)
    rows, validation = make_data(work / "data", args.text, args.steps)
    make_model(work / "model")
    losses, validations = reference(work / "model", rows, validation, args.steps)
    losses = {i + 1: x for i, x in enumerate(losses)}
    good = True
    for ranks in (1, 2, 4):
        found, measured = run_train(build, work, ranks, args.steps)
        good &= compare(f"{ranks} ranks, losses", losses, found)
        good &= compare(f"{ranks} ranks, validation losses", validations, measured)
        if ranks == 1:
            continue
        found, _ = run_train(build, work, ranks, args.steps,
                             ("--resume", work / "out-checkpoints" / "checkpoint-7"))
        good &= compare(f"{ranks} ranks, resumed at step 7",
                        {k: v for k, v in losses.items() if k > 7}, found)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
