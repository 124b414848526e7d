#!/usr/bin/env python3
"""Check that fsdp.c reads checkpoints of PyTorch and safetensors as they do, and they read ours.

usage: tools/check_formats.py FOLDER... [--fsdp build/fsdp]

FOLDER is searched for checkpoints: directories of torch.distributed.checkpoint (DCP), files of
torch.save, safetensors, and folders of Hugging Face models. `fsdp checkpoint convert` must turn each
checkpoint that PyTorch (or safetensors) loads into a file of torch.save and a directory of DCP, which
unmodified PyTorch must load with torch.equal on every tensor and the same plain values; and into
safetensors too, if it has a model. `fsdp checkpoint verify` must refuse the files that they refuse, and
the legacy format of torch.save; its messages are printed for review. Needs torch and safetensors; the
tests do not need this script. The exit code is not 0 if anything differs.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings
import zipfile

import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

MODEL_KEYS = ("model", "state_dict", "model_state_dict")


def read_dcp(path):
    with tempfile.TemporaryDirectory() as scratch:
        whole = pathlib.Path(scratch) / "whole.pt"
        dcp_to_torch_save(str(path), str(whole))
        return torch.load(whole, weights_only=False)


def read_folder(path):
    for name, load in (("model.safetensors", load_file), ("pytorch_model.bin", torch.load)):
        if (path / name).exists():
            return load(path / name)
        index = path / f"{name}.index.json"
        if index.exists():
            files = set(json.loads(index.read_text())["weight_map"].values())
            return {key: value for file in sorted(files) for key, value in load(path / file).items()}
    return None


def read(path):
    """What Python reads from a checkpoint; None: it is not a checkpoint."""
    if path.is_dir():
        return read_dcp(path) if (path / ".metadata").exists() else read_folder(path)
    if path.suffix == ".safetensors":
        return load_file(path)
    if path.suffix in (".pt", ".pth", ".bin"):
        return torch.load(path, weights_only=True)
    return None


def is_legacy(path):
    return path.suffix == ".pt" and not zipfile.is_zipfile(path)


def flatten(value, name=""):
    """{name: tensor or plain value}; empty dicts and lists are left out, as in DCP."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list) and any(isinstance(item, (dict, list, torch.Tensor)) for item in value):
        items = enumerate(value)
    else:
        return {name: value}
    flat = {}
    for key, item in items:
        flat.update(flatten(item, f"{name}.{key}" if name else str(key)))
    return flat


def is_plain(value):
    """Whether a value is one that checkpoints keep here. Objects of other classes are left out: `fsdp
    checkpoint` names them, and never runs their code."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(is_plain(item) for item in value)
    return value is None or isinstance(value, (torch.Tensor, torch.dtype, bool, int, float, complex, str, bytes, dict))


def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else torch.empty(0)


def same(a, b):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(raw(a), raw(b))
    if isinstance(a, torch.Size):
        a = tuple(a)
    return type(a) is type(b) and a == b


def differences(want, got):
    want, got = flatten(want), flatten(got)
    want = {name: value for name, value in want.items() if is_plain(value)}
    names = [name for name in want.keys() | got.keys()
             if name not in want or name not in got or not same(want[name], got[name])]
    return [f"{name}: {str(want.get(name, 'not there'))[:60]} became {str(got.get(name, 'not there'))[:60]}"
            for name in sorted(names)]


def model_of(value):
    """The part that safetensors can have: the tensors of the model."""
    if not isinstance(value, dict):
        return {}
    for key in MODEL_KEYS:
        if isinstance(value.get(key), dict):
            value = value[key]
    return {name: item for name, item in value.items() if isinstance(item, torch.Tensor)}


def unshared(tensors):
    """Tensors that share a storage become separate ones in safetensors and DCP."""
    return {name: item.clone() for name, item in tensors.items()}


class Checker:
    def __init__(self, program):
        self.program, self.failed, self.read = program, 0, 0

    def say(self, good, text):
        self.failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {text}")

    def run(self, *args):
        done = subprocess.run([self.program, "checkpoint", *map(str, args)], capture_output=True, text=True)
        return done.returncode, (done.stdout + done.stderr).strip()

    def convert(self, path, target, reader, want, what):
        code, text = self.run("convert", path, target, *(["--format", "dcp"] if what == "DCP" else []))
        if code:
            return self.say(False, f"{path} into {what}: {text}")
        wrong = differences(want, reader(target))
        self.say(not wrong, f"{path} into {what}: {len(flatten(want))} tensors and values"
                 + "".join("\n       " + line for line in wrong[:5]))

    def accept(self, path, want):
        self.read += 1
        code, text = self.run("verify", path)
        self.say((code == 0) == is_finite(want), text.splitlines()[-1])
        with tempfile.TemporaryDirectory() as scratch:
            out = pathlib.Path(scratch)
            self.convert(path, out / "x.pt", lambda p: torch.load(p, weights_only=True), want, "torch.save")
            self.convert(path, out / "dcp", read_dcp, want, "DCP")
            if model_of(want) and all(item.dtype is not torch.complex128 for item in model_of(want).values()):
                self.convert(path, out / "x.safetensors", load_file, unshared(model_of(want)), "safetensors")

    def refuse(self, path, error):
        code, text = self.run("verify", path)
        self.say(code == 1, f"{path}: Python: {str(error).splitlines()[0][:70]!r}\n       "
                 + text.splitlines()[0])

    def check(self, path):
        try:
            want = read(path)
        except Exception as error:  # torch, pickle and safetensors raise different ones
            return self.refuse(path, error)
        if is_legacy(path):
            return self.refuse(path, "loaded, being of the legacy format")
        if want is not None:
            self.accept(path, want)


def is_finite(tree):
    """`fsdp checkpoint verify` calls a file with NaN or infinity damaged."""
    return all(bool(torch.isfinite(x.float()).all()) for x in flatten(tree).values()
               if isinstance(x, torch.Tensor) and x.is_floating_point())


def checkpoints(folder):
    """True for files that are part of a DCP directory or of a sharded model."""
    yield folder
    if (folder / ".metadata").exists():
        return
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from checkpoints(path)
        else:
            yield path


def main():
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--fsdp", default="build/fsdp")
    options = parser.parse_args()
    checker = Checker(str(pathlib.Path(options.fsdp).resolve()))
    for folder in options.folders:
        for path in checkpoints(folder):
            checker.check(path)
    print(f"{checker.read} checkpoints read, {checker.failed} failures")
    return 1 if checker.failed or not checker.read else 0


if __name__ == "__main__":
    sys.exit(main())
