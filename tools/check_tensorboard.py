#!/usr/bin/env python3
"""Check that TensorBoard's own reader reads the event files of `fsdp train --report-to tensorboard`.

usage: tools/check_tensorboard.py [--fsdp build/fsdp] [--ranks N]

A tiny model is trained on N ranks with a checkpoint in the middle, and once more from that
checkpoint. Every scalar that TensorBoard then shows must be the number in the file of metrics,
rounded to float32, each step once. A third run is killed in the middle: what it reported up to then
must be readable. The histograms of the last step must be those that NumPy makes of the weights that
were saved, and the same on one rank. Needs PyPI's tensorboard and safetensors; the tests do not need this script. The exit code is not 0
if anything differs, and 77 if one of them is missing.
"""
import argparse
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time

try:
    import numpy as np
    import safetensors.numpy
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    print("skipped: no tensorboard or no safetensors here (pip install tensorboard safetensors)")
    sys.exit(77)

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 67,
          "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
          "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64,
          "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
          "initializer_range": 0.02, "tie_word_embeddings": False, "bos_token_id": 1,
          "eos_token_id": 2}
RENAMED = {"lr": "learning_rate"}


def float32(value):
    return struct.unpack("f", struct.pack("f", float(value)))[0]


def command(options, work, *more):
    return [options.fsdp, "launch", "-n", str(options.ranks), "train", "--model", str(work / "model"),
            "--from-config", "--data", str(work / "rows.jsonl"), "--validation-data",
            str(work / "rows.jsonl"), "--no-save-model", "--batch-size", "2", "--evaluation-steps", "4", "--report_to", "tensorboard", *more]


def expected(metrics):
    """{(tag, step): value} of a file of metrics."""
    found = {}
    sections = {"step": "train", "validation": "eval"}
    for line in metrics.read_text().splitlines():
        row = json.loads(line)
        kind, step = row.pop("kind"), row.pop("step")
        for key, value in row.items():
            if isinstance(value, (int, float, bool)) or value in ("NaN", "Infinity", "-Infinity"):
                found[f"{sections.get(kind, kind)}/{RENAMED.get(key, key)}", step] = float32(value)
        if kind == "step":
            for key, value in row["memory_peak"].items():
                found["memory/" + key, step] = float32(value)
    return found


def shown(folder):
    """{(tag, step): value} as TensorBoard shows it, and the text of the options."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    scalars = [((tag, e.step), e.value) for tag in events.Tags()["scalars"] for e in events.Scalars(tag)]
    assert len(scalars) == len(dict(scalars)), "a step is shown twice"
    text = events.Tensors("args/text_summary")[-1].tensor_proto.string_val[0].decode()
    return dict(scalars), text


def same(a, b):
    return a == b or (a != a and b != b)


def compare(name, want, have):
    wrong = sorted(key for key in want.keys() | have.keys()
                   if key not in want or key not in have or not same(want[key], have[key]))
    for key in wrong[:5]:
        print(f"  {key}: metrics {want.get(key)}, TensorBoard {have.get(key)}")
    print(f"{name}: {len(want)} numbers, {'ok' if not wrong else f'{len(wrong)} differ: FAIL'}")
    return not wrong and len(want) > 0


def check_resumed(options, work):
    logs, metrics = work / "logs", work / "m.jsonl"
    common = ["--logging_dir", str(logs), "--metrics", str(metrics), "--save-steps", "5",
              "--checkpoint-dir", str(work / "checkpoints")]
    subprocess.run(command(options, work, *common, "--max-steps", "9"), check=True, capture_output=True)
    good = compare("one run", expected(metrics), shown(logs)[0])
    subprocess.run(command(options, work, *common, "--max-steps", "12", "--resume",
                           str(work / "checkpoints" / "checkpoint-5")), check=True, capture_output=True)
    want, (have, text) = expected(metrics), shown(logs)
    # The first run's line of its checkpoint at step 9 and its summary are purged with its steps.
    good &= compare("resumed at step 5", want, have)
    good &= "batch-size: 2" in text
    return good


def check_killed(options, work):
    logs, metrics = work / "killed", work / "k.jsonl"
    process = subprocess.Popen(command(options, work, "--logging_dir", str(logs), "--metrics",
                                       str(metrics), "--max-steps", "1000000", "--epochs", "1000000"),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True)
    end = time.time() + 60
    while time.time() < end and not (metrics.exists() and metrics.read_text().count("\n") > 50):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(1)  # the ranks notice that the launcher is gone
    want, (have, _) = expected(metrics), shown(logs)
    last = max(step for _, step in want)
    both = [{key: value for key, value in found.items() if key[1] < last} for found in (want, have)]
    return compare("killed", *both)


def histograms(folder):
    """{(tag, step): histogram}"""
    events = EventAccumulator(str(folder), size_guidance={"histograms": 0})
    events.Reload()
    return {(tag, e.step): e.histogram_value for tag in events.Tags()["histograms"]
            for e in events.Histograms(tag)}


def unit_of(name):
    parts = name.split(".")
    units = [".".join(parts[:3])] if parts[1] == "layers" else ["lm_head", "model.embed_tokens"]
    return next((unit for unit in units if name.startswith(unit + ".")), "root")


def check_histograms(options, work):
    """Layers, the embeddings and the head are units, and the rest is the root."""
    found = []
    for ranks in (1, options.ranks):
        logs, output = work / f"histograms{ranks}", work / f"output{ranks}"
        line = command(options, work, "--logging_dir", str(logs), "--output", str(output),
                       "--load-best-model-at-end", "false", "--gradient-accumulation-steps",
                       str(options.ranks // ranks), "--max-steps", "4", "--log-histograms", "2",
                       "--max-grad-norm", "1")
        line[line.index("-n") + 1] = str(ranks)
        line.remove("--no-save-model")
        subprocess.run(line, check=True, capture_output=True)
        found.append(histograms(logs))
    one, many = found
    good = one == many and {step for _, step in many} == {2, 4}
    with safetensors.numpy.safe_open(output / "model.safetensors", "np") as weights:
        values = {}
        for name in weights.keys():
            values.setdefault(unit_of(name), []).append(weights.get_tensor(name).ravel())
    good &= {tag for tag, _ in many} == {f"{what}/{unit}" for what in ("weights", "gradients") for unit in values}
    for unit, arrays in values.items():
        x, h = np.concatenate(arrays), many[f"weights/{unit}", 4]
        counts, _ = np.histogram(x, h.bucket_limit)
        good &= (h.num == x.size and h.min == x.min() and h.max == x.max() and h.bucket[0] == 0 and
                 list(counts) == list(h.bucket[1:]) and np.isclose(h.sum, x.sum(dtype=np.float64), rtol=1e-12) and
                 np.isclose(h.sum_squares, np.square(x, dtype=np.float64).sum(), rtol=1e-12))
    print(f"histograms: {len(many)} of {len(values)} units on 1 and {options.ranks} ranks, "
          f"{'ok' if good else 'FAIL'}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fsdp", default="build/fsdp")
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    options.fsdp = str(pathlib.Path(options.fsdp).resolve())
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "model").mkdir()
        (work / "model" / "config.json").write_text(json.dumps(CONFIG))
        (work / "rows.jsonl").write_text("".join(
            json.dumps({"input_ids": [1 + (i * 7 + k * k) % 66 for k in range(5 + i % 9)]}) + "\n"
            for i in range(40)))
        good = [check_resumed(options, work), check_killed(options, work), check_histograms(options, work)]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
