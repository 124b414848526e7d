#!/usr/bin/env python3
"""Check that fsdp.c and bitsandbytes read each other's models in NF4 and have the same weights.

usage: tools/check_bitsandbytes.py [--fsdp build/fsdp] [--fixture FILE]

For each type of model, transformers quantizes a tiny model with BitsAndBytesConfig, with and without
double quantization, and saves it. `fsdp checkpoint convert` quantizes the same model. The indices and
the scales must be the same bytes; the offset of double quantization, a mean of float32 numbers, may
differ in its last bits, and so may what depends on it. Then transformers loads the folder that fsdp.c
wrote, and `fsdp checkpoint convert --dtype float32` reads the folder that transformers wrote: each
weight must have the values that bitsandbytes computes. `fsdp evaluate` must give transformers' loss.

--fixture writes the file with which tests/kernels/test_nf4.c compares.

Needs torch, transformers, bitsandbytes, accelerate, safetensors; the tests do not need this script.
The exit code is not 0 if anything differs.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import bitsandbytes.functional as F
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

VOCABULARY = 131


def llama():
    return hf.LlamaForCausalLM(hf.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=96, intermediate_size=200, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=64))


def large():
    """A model whose matrices have more than one block of scales."""
    return hf.LlamaForCausalLM(hf.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=256, intermediate_size=640, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64))


def qwen2():
    return hf.Qwen2ForCausalLM(hf.Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=88, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64))


def t5():
    return hf.T5ForConditionalGeneration(hf.T5Config(
        vocab_size=VOCABULARY, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_decoder_layers=2, num_heads=4,
        relative_attention_num_buckets=8, relative_attention_max_distance=20, dropout_rate=0,
        decoder_start_token_id=0))


MODELS = {"llama": llama, "large": large, "qwen2": qwen2, "t5": t5}
failures = 0


def check(name, good, detail=""):
    global failures
    failures += not good
    print(f"{'ok' if good else 'FAIL'} {name}{' ' + detail if detail else ''}", flush=True)


def run(fsdp, *args):
    done = subprocess.run([fsdp, *map(str, args)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, args))}: {done.stderr}")
    return done.stdout


def weights(folder):
    return {k: v for f in sorted(pathlib.Path(folder).glob("*.safetensors")) for k, v in load_file(f).items()}


def compare_files(name, ours, theirs):
    """Compare the tensors of two folders in NF4."""
    check(f"{name}: names", set(ours) == set(theirs), str(sorted(set(ours) ^ set(theirs))[:4]))
    worst = 0.0
    for key in sorted(set(ours) & set(theirs)):
        a, b = ours[key], theirs[key]
        if ".quant_state." in key:
            a, b = (json.loads(bytes(t.tolist())) for t in (a, b))
            offsets = [d.pop("nested_offset", 0.0) for d in (a, b)]
            worst = max(worst, abs(offsets[0] - offsets[1]) / max(abs(offsets[1]), 1e-30))
            check(f"{name}: {key}", a == b, f"{a} {b}" if a != b else "")
        elif key.endswith("nested_absmax"):
            check(f"{name}: {key}", torch.allclose(a, b, rtol=1e-5, atol=1e-8))
        elif key.endswith("absmax") and a.dtype == torch.uint8:
            differing = (a.int() - b.int()).abs()
            check(f"{name}: {key}", differing.max() <= 1 and differing.sum() <= 1 + a.numel() // 100,
                  f"{int(differing.sum())} of {a.numel()} differ by one")
        else:
            check(f"{name}: {key}", a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b))
    check(f"{name}: offsets", worst < 1e-6, f"{worst:.2g}")


def values(model):
    """Return the values of all weights, as bitsandbytes computes them."""
    out = {}
    for key, p in model.state_dict(keep_vars=True).items():
        if any(part in key for part in (".absmax", "quant_map", "quant_state")):
            continue
        state = getattr(p, "quant_state", None)
        out[key] = F.dequantize_4bit(p.data, state).float() if state is not None else p.detach().float()
    return out


def compare_values(name, got, want):
    missing = [k for k in got if k not in want]
    check(f"{name}: names", not missing, str(missing[:4]))
    bad = [k for k in got if k in want and not torch.equal(got[k].float(), want[k])]
    check(f"{name}: values of {len(got)} tensors", not bad, str(bad[:4]))


def loss_of(model, rows, seq2seq):
    losses, n = 0.0, 0
    for row in rows:
        ids = torch.tensor([row["input_ids"]])
        labels = torch.tensor([row.get("labels", row["input_ids"])])
        with torch.no_grad():
            loss = float(model(input_ids=ids, labels=labels).loss)
        count = labels.shape[1] - (0 if seq2seq else 1)
        losses, n = losses + loss * count, n + count
    return losses / n


def check_model(fsdp, name, make, double, work):
    torch.manual_seed(5)
    dtype = torch.float32
    base, theirs, ours, undone = (work / f"{name}{int(double)}_{part}" for part in ("base", "theirs", "ours", "undone"))
    made = make()
    made.save_pretrained(base)
    config = hf.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=double,
                                   bnb_4bit_compute_dtype=dtype)
    title = f"{name}{', double quantization' if double else ''}"
    model = type(made).from_pretrained(base, quantization_config=config, dtype=dtype, device_map="cpu")
    model.save_pretrained(theirs)
    flags = ["--load-in-4bit"] + (["--bnb-4bit-use-double-quant"] if double else [])
    run(fsdp, "checkpoint", "convert", base, ours, *flags)
    compare_files(f"{title}: files", weights(ours), weights(theirs))
    run(fsdp, "checkpoint", "convert", theirs, undone, "--dtype", "float32")
    compare_values(f"{title}: their folder here", weights(undone), values(model))
    loaded = type(made).from_pretrained(ours, dtype=dtype, device_map="cpu")
    run(fsdp, "checkpoint", "convert", ours, work / "ours_undone", "--dtype", "float32", "--overwrite")
    compare_values(f"{title}: our folder there", weights(work / "ours_undone"), values(loaded))
    generator = torch.Generator().manual_seed(1)
    rows = [{"input_ids": torch.randint(3, VOCABULARY, (17,), generator=generator).tolist()} for _ in range(4)]
    seq2seq = name == "t5"
    for row in rows:
        if seq2seq:
            row["labels"] = torch.randint(3, VOCABULARY, (9,), generator=generator).tolist()
    data = work / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = json.loads(run(fsdp, "evaluate", "--model", theirs, "--data", data, "--json",
                         *(["--no-generate"] if seq2seq else [])))
    ours_loss = (out["models"][0] if "models" in out else out)["loss"]
    want = loss_of(model.eval(), rows, seq2seq)
    check(f"{title}: loss", abs(ours_loss - want) < 2e-5, f"{ours_loss:.7f} {want:.7f}")


def write_fixture(path):
    torch.manual_seed(7)
    code = F.get_4bit_type("nf4", device="cpu")
    out = {"map": F.create_dynamic_map()}
    between = (code[:-1] + code[1:]) / 2
    ties = torch.cat([code, between, torch.nextafter(between, torch.tensor(2.0)),
                      torch.nextafter(between, torch.tensor(-2.0)), torch.tensor([1.0, -1.0, 0.0])])
    zeros = torch.randn(4, 80)
    zeros[1] = 0
    zeros[2] *= 1e-6
    zeros[3] = torch.linspace(-1, 1, 80)
    cases = {"rows": torch.randn(96, 200) * 0.02, "tail": torch.randn(37, 25) * 0.1, "one": torch.tensor([[-0.75]]),
             "zeros": zeros, "ties": torch.stack([ties, ties * 0.37, ties * 3.1]),
             "narrow": (torch.randn(64, 64) * 0.02).bfloat16().float()}
    for name, x in cases.items():
        packed, state = F.quantize_4bit(x.contiguous(), blocksize=64, compress_statistics=False, quant_type="nf4")
        absmax = state.absmax.clone()
        offset = absmax.double().mean().float()
        codes, nested = F.quantize_blockwise(absmax - offset, code=out["map"], blocksize=256)
        out |= {f"{name}.x": x.contiguous(), f"{name}.packed": packed.reshape(-1), f"{name}.absmax": absmax,
                f"{name}.offset": offset.reshape(1), f"{name}.codes": codes, f"{name}.nested": nested.absmax}
        state.absmax = F.dequantize_blockwise(codes, nested) + offset
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            state.dtype = dtype
            if name != "rows" or dtype == torch.bfloat16:
                key = f"{name}.values.{str(dtype).removeprefix('torch.')}"
                out[key] = F.dequantize_4bit(packed, state).reshape(x.shape).contiguous()
    save_file(out, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fsdp", default="build/fsdp")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--fixture")
    args = parser.parse_args()
    if args.fixture:
        write_fixture(args.fixture)
        return
    with tempfile.TemporaryDirectory() as work:
        for name in args.models.split(","):
            for double in (False, True):
                check_model(args.fsdp, name, MODELS[name], double, pathlib.Path(work))
    print(f"{failures} failed")
    sys.exit(1 if failures else 0)


main()
