#!/usr/bin/env python3
"""Check examples/nlp_example against the same job in PyTorch: the tutorial's program on MRPC.

usage: tools/check_nlp_example.py --train FILE --validation FILE [--build build] [--steps 20]
                                  [--keep DIR]

transformers makes a small random BERT without dropout and a tokenizer from a vocab.txt of the words
of FILE, MRPC's train.csv. PyTorch trains it on the rows of FILE, in their
order, with AdamW and get_linear_schedule_with_warmup() as Accelerate advances it: the loss of a step
is the mean over W ranks of the mean over 16 / W rows. nlp_example does the same on W = 1, 2 and 4
ranks. All losses and the accuracy and F1 after each epoch must be equal within TOLERANCE. A run that
was interrupted by --checkpointing_steps must continue with the same losses. Needs torch and transformers; the tests do not need this script. The exit code is not 0 if
anything differs.
"""
import argparse
import collections
import csv
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
import transformers as hf

BATCH = 16
EPOCHS = 2
LR = 5e-4
WARMUP = 10
TOLERANCE = 2e-5


def read_rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def label_of(row):
    return {"not_equivalent": 0, "equivalent": 1}.get(row["label"]) if not row["label"].isdigit() \
        else int(row["label"])


def repeat(path, rows, count):
    """Write `count` rows, repeating those of the file: MRPC's fixture has only six."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["label", "sentence1", "sentence2"])
        for i in range(count):
            a, b = rows[i % len(rows)], rows[(i * 7 // len(rows) + i) % len(rows)]
            same = i // len(rows) % 2 == 0
            second = a if same else b
            writer.writerow([a["label"] if same else int(a is second), a["sentence1"],
                             second["sentence2"]])
    return read_rows(path)


def make_model(folder, rows):
    words = collections.Counter()
    for row in rows:
        words.update(re.findall(r"\w+|[^\w\s]", (row["sentence1"] + " " + row["sentence2"]).lower()))
    letters = sorted(set("".join(words)))
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + letters + ["##" + c for c in letters]
    vocab += [w for w, n in words.most_common(400) if w not in vocab]
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf-8")
    torch.manual_seed(1)
    config = hf.BertConfig(vocab_size=len(vocab), hidden_size=32, num_hidden_layers=2,
                           num_attention_heads=4, intermediate_size=64, max_position_embeddings=128,
                           hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    model = hf.BertForSequenceClassification(config)
    model.save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "BertTokenizer", "do_lower_case": true, "model_max_length": 128}')
    return model, hf.BertTokenizer(vocab=str(folder / "vocab.txt"), do_lower_case=True)


def encode(tokenizer, rows):
    return tokenizer([r["sentence1"] for r in rows], [r["sentence2"] for r in rows],
                     truncation=True, max_length=128, padding=True, return_tensors="pt")


def reference(model, tokenizer, rows, validation, ranks, steps):
    """The losses of the steps, and accuracy and F1 after each epoch."""
    batch = BATCH // ranks
    per_epoch = len(rows) // BATCH
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    scheduler = hf.get_linear_schedule_with_warmup(optimizer, WARMUP, len(rows) // batch * EPOCHS)
    losses, metrics = [], []
    for epoch in range(EPOCHS):
        model.train()
        for step in range(per_epoch):
            total = 0.0
            for rank in range(ranks):
                at = (step * ranks + rank) * batch
                part = rows[at:at + batch]
                out = model(**encode(tokenizer, part),
                            labels=torch.tensor([label_of(r) for r in part]))
                (out.loss / ranks).backward()
                total += out.loss.item() / ranks
            optimizer.step()
            for _ in range(ranks):
                scheduler.step()
            optimizer.zero_grad()
            losses.append(total)
        model.eval()
        with torch.no_grad():
            guess = model(**encode(tokenizer, validation)).logits.argmax(-1)
        truth = torch.tensor([label_of(r) for r in validation])
        right = int(((guess == 1) & (truth == 1)).sum())
        metrics.append((float((guess == truth).double().mean()),
                        2 * right / max(1, int((guess == 1).sum() + (truth == 1).sum()))))
    assert len(losses) >= steps, "too few rows"
    return losses, metrics


def run(build, ranks, folder, train, validation, more=()):
    command = [f"{build}/fsdp", "launch", "-n", str(ranks), f"{build}/examples/nlp_example", "--cpu",
               "--model_name_or_path", str(folder), "--train_file", str(train), "--validation_file",
               str(validation), "--batch_size", str(BATCH // ranks), "--num_epochs", str(EPOCHS),
               "--lr", str(LR), "--num_warmup_steps", str(WARMUP), "--no_shuffle",
               "--logging_steps", "1", *map(str, more)]
    out = subprocess.run(command, capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"{' '.join(command)}\n{out.stderr}")
    losses = {int(s): float(v) for s, v in re.findall(r"step (\d+): loss (\S+),", out.stdout)}
    metrics = [(float(a), float(f)) for a, f in
               re.findall(r"'accuracy': (\S+), 'f1': (\S+)}", out.stdout)]
    return losses, metrics


def compare(name, expected, found):
    worst = max(abs(e - f) for e, f in zip(expected, found))
    print(f"{name}: {len(found)} values, largest difference {worst:.2g}")
    return len(expected) == len(found) and worst <= TOLERANCE


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--train", required=True)
    parser.add_argument("--validation", required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--keep")
    args = parser.parse_args()
    torch.set_num_threads(1)
    work = pathlib.Path(args.keep or tempfile.mkdtemp())
    folder = work / "model"
    folder.mkdir(parents=True, exist_ok=True)
    train, validation = work / "train.csv", work / "validation.csv"
    rows = repeat(train, read_rows(args.train), args.steps * BATCH)
    held_back = repeat(validation, read_rows(args.validation), 37)
    make_model(folder, rows)
    good = True
    for ranks in (1, 2, 4):
        model = hf.BertForSequenceClassification.from_pretrained(folder)
        tokenizer = hf.BertTokenizer(vocab=str(folder / "vocab.txt"), do_lower_case=True)
        losses, metrics = reference(model, tokenizer, rows, held_back, ranks, args.steps)
        found, measured = run(args.build, ranks, folder, train, validation)
        good &= compare(f"{ranks} ranks, losses", losses, [found[i + 1] for i in range(len(found))])
        good &= compare(f"{ranks} ranks, accuracy and F1", [x for m in metrics for x in m],
                        [x for m in measured for x in m])
        if ranks == 1:
            continue
        run(args.build, ranks, folder, train, validation,
            ("--checkpointing_steps", 7, "--output_dir", work))
        resumed, measured = run(args.build, ranks, folder, train, validation,
                                ("--resume_from_checkpoint", work / "step_7"))
        good &= min(resumed) == 8 and compare(f"{ranks} ranks, resumed at step 7", losses[7:],
                                              [resumed[i] for i in sorted(resumed)])
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
