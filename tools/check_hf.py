#!/usr/bin/env python3
"""Check that transformers loads what fsdp.c wrote, and computes what fsdp.c computes.

usage: tools/check_hf.py [--fsdp build/fsdp] DIR...

Each DIR is a T5 folder (e.g. the --output of `fsdp train`). For each one: no missing or unexpected
keys, the logits of a drawn batch as `fsdp verify` computes them, the ids of greedy generation.
Needs torch, transformers, safetensors; the tests do not need this script.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import save_file
from transformers import T5ForConditionalGeneration


def load(folder):
    """The model, after a strict look at its keys."""
    model, info = T5ForConditionalGeneration.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    bad = {k: sorted(v) for k, v in info.items() if v}
    assert not bad, f"{folder}: transformers reports {bad}"
    return model.eval()


def draw_batch(vocab, generator):
    """Rows of 13, 7 and 1 source ids and 9, 4 and 2 labels, padded on the right."""
    source, target = (13, 7, 1), (9, 4, 2)
    ids = torch.zeros(3, max(source), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    labels = torch.full((3, max(target)), -100)
    for i, (s, t) in enumerate(zip(source, target)):
        ids[i, :s] = torch.randint(2, vocab, (s,), generator=generator)
        mask[i, :s] = 1
        labels[i, :t] = torch.randint(2, vocab, (t,), generator=generator)
    return dict(input_ids=ids, attention_mask=mask, labels=labels)


def check_forward(fsdp, folder, model, batch):
    """A verify case of this batch, made here and compared by fsdp."""
    with tempfile.TemporaryDirectory() as case:
        case = pathlib.Path(case)
        shutil.copytree(folder, case / "model")
        save_file(batch, case / "inputs.safetensors")
        model.zero_grad()
        out = model(**batch)
        out.loss.backward()
        largest = out.logits.detach().abs().max().item()
        expected = {"logits": out.logits.detach().contiguous(), "loss": out.loss.detach()}
        for name, p in model.named_parameters():
            expected[f"grad.{name}"] = p.grad.contiguous()
        save_file(expected, case / "expected.safetensors")
        tolerance = {"logits": {"absolute": 1e-4 * largest}, "loss": {"absolute": 1e-4},
                     "grad": {"relative_to_tensor_max": 2e-4}}
        (case / "tolerance.json").write_text(json.dumps({"suggested": tolerance}))
        run = subprocess.run([fsdp, "verify", str(case)], capture_output=True, text=True)
        last = run.stdout.strip().splitlines()[-1] if run.stdout.strip() else run.stderr
        if run.returncode:
            print(*[line for line in run.stdout.splitlines() if "FAILED" in line], sep="\n")
        return run.returncode == 0, last


def check_generation(fsdp, folder, model, batch):
    prompts = [row[m.bool()].tolist() for row, m in zip(batch["input_ids"], batch["attention_mask"])]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(prompts, file)
        file.flush()
        run = subprocess.run([fsdp, "generate", "--model", folder, "--input-ids", file.name,
                              "--max-new-tokens", "12", "--json"], capture_output=True, text=True)
    if run.returncode:
        return False, run.stderr
    got = [json.loads(line)["ids"] for line in run.stdout.splitlines()]
    for prompt, ids in zip(prompts, got):
        want = model.generate(torch.tensor([prompt]), max_new_tokens=12, num_beams=1,
                              do_sample=False)[0].tolist()
        if ids != want:
            return False, f"{prompt}: fsdp {ids}, transformers {want}"
    return True, f"{len(got)} sequences alike"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fsdp", default="build/fsdp")
    parser.add_argument("folders", nargs="+", metavar="DIR")
    args = parser.parse_args()
    generator, failed = torch.Generator().manual_seed(1), False
    for folder in args.folders:
        model = load(folder)
        batch = draw_batch(model.config.vocab_size, generator)
        for check in (check_forward, check_generation):
            ok, text = check(args.fsdp, folder, model, batch)
            failed |= not ok
            print(f"{folder}: {check.__name__}: {'ok' if ok else 'FAILED'}: {text}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
