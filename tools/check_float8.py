#!/usr/bin/env python3
"""Check that float8 here computes what torchao computes.

usage: tools/check_float8.py [--fsdp build/fsdp] [--library build/libfsdp.so] [--write FILE]

First fsdp_float8_linear() of the library is called for each recipe, several shapes and float32 or
bfloat16, and its result and gradients are compared with those of torchao's Float8Linear, which
emulates float8 products (emulate=True). Then a tiny Llama is trained by `fsdp train --float8-recipe`
and, converted by torchao's convert_to_float8_training(), by PyTorch, from the same weights with the
same rows. The losses of each step are compared, and so is a step of a LoRA adapter of PEFT. The layers that torchao converts with torchtitan's
and Accelerate's filters are compared, too.

--write FILE writes the operands, results and gradients of one shape for tests/autograd/test_float8_linear.c.

Needs torch, torchao, transformers, accelerate, peft, safetensors, numpy; the tests do not need this script. The exit code is
not 0 if anything differs.
"""
import argparse
import ctypes
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy
import peft
import torch
import transformers as hf
from accelerate.utils.ao import filter_linear_layers, find_first_last_linear_layers
from safetensors.torch import load_file, save_file
from torchao.float8 import Float8LinearConfig, convert_to_float8_training
from torchao.float8.float8_linear import Float8Linear

RECIPES = ["tensorwise", "rowwise", "rowwise_with_gw_hp"]
SHAPES = [(1, 16, 16), (5, 32, 48), (64, 80, 16), (130, 64, 112)]  # rows, features in, features out
DTYPES = {torch.float32: 0, torch.bfloat16: 1}  # fsdp_dtype
# Tokens of a row. All but the first are labels. fsdp.c divides gradients by the number of labels after backward, and
# PyTorch before it. Rounding to float8 is the same only if that number is a power of two.
LENGTH = 17
BATCH = 4
RATE = 0.05
failures = 0


def check(name, good, detail=""):
    global failures
    failures += not good
    print(f"{'ok' if good else 'FAIL'} {name}{': ' + detail if detail else ''}", flush=True)


def config_of(recipe):
    config = Float8LinearConfig.from_recipe_name(recipe)
    object.__setattr__(config, "emulate", True)
    return config


# --- the operation ---

class Library:
    """The functions of libfsdp.so that compute one layer."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(str(path))
        self.lib.fsdp_last_error.restype = ctypes.c_char_p
        for name in ("fsdp_float8_linear", "fsdp_tensor_grad"):
            getattr(self.lib, name).restype = ctypes.c_void_p
        self.device = ctypes.c_void_p()
        self.try_("fsdp_device_create", None, ctypes.byref(self.device))

    def try_(self, name, *args):
        if getattr(self.lib, name)(*args) != 0:
            sys.exit(f"{name}: {self.lib.fsdp_last_error().decode()}")

    def tensor(self, t):
        out = ctypes.c_void_p()
        shape = (ctypes.c_int64 * t.dim())(*t.shape)
        bits = t.detach().contiguous()
        data = bits.view(torch.int16).numpy() if t.dtype == torch.bfloat16 else bits.numpy()
        self.try_("fsdp_tensor_from_data", self.device, DTYPES[t.dtype], t.dim(), shape,
                  data.ctypes.data_as(ctypes.c_void_p), 3, ctypes.byref(out))
        return out

    def floats(self, tensor, shape):
        out = numpy.empty(tuple(shape), dtype=numpy.float32)
        self.try_("fsdp_tensor_to_floats", tensor, out.ctypes.data_as(ctypes.c_void_p))
        return torch.from_numpy(out)

    def layer(self, recipe, x, w, bias, dy):
        """Result, and gradients of x, w and bias."""
        tape, scope = ctypes.c_void_p(), ctypes.c_void_p()
        self.try_("fsdp_tape_create", ctypes.byref(tape))
        self.try_("fsdp_scope_open", self.device, tape, None, ctypes.byref(scope))
        leaves = [self.tensor(t) for t in (x, w, bias)]
        for leaf in leaves:
            self.try_("fsdp_tensor_set_requires_grad", leaf, True)
        y = self.lib.fsdp_float8_linear(scope, *leaves, RECIPES.index(recipe))
        self.try_("fsdp_scope_status", scope)
        roots, grads = (ctypes.c_void_p * 1)(y), (ctypes.c_void_p * 1)(self.tensor(dy))
        result = self.floats(ctypes.c_void_p(y), dy.shape)
        self.try_("fsdp_backward", tape, roots, grads, 1)
        gradients = [self.floats(ctypes.c_void_p(self.lib.fsdp_tensor_grad(leaf)), t.shape)
                     for leaf, t in zip(leaves, (x, w, bias))]
        self.lib.fsdp_scope_close(scope)
        self.lib.fsdp_tape_destroy(tape)
        return [result] + gradients


def torchao_layer(recipe, x, w, bias, dy):
    linear = torch.nn.Linear(w.shape[1], w.shape[0], dtype=x.dtype)
    linear.weight.data, linear.bias.data = w.clone(), bias.clone()
    layer = Float8Linear.from_float(linear, config=config_of(recipe))
    x = x.clone().requires_grad_()
    y = layer(x)
    y.backward(dy)
    return [t.detach().float() for t in (y, x.grad, layer.weight.grad, layer.bias.grad)]


def operands(shape, dtype, seed):
    rows, features_in, features_out = shape
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, features_in, generator=g) * torch.logspace(-2, 1, rows)[:, None]
    w = torch.randn(features_out, features_in, generator=g) * 0.05
    bias = torch.randn(features_out, generator=g)
    dy = torch.randn(rows, features_out, generator=g) * torch.logspace(-4, -1, features_out)[None]
    return [t.to(dtype) for t in (x, w, bias, dy)]


def check_operation(library):
    for recipe in RECIPES:
        for dtype in DTYPES:
            worst = 0.0
            for seed, shape in enumerate(SHAPES):
                given = operands(shape, dtype, seed)
                for want, got in zip(torchao_layer(recipe, *given), library.layer(recipe, *given)):
                    worst = max(worst, ((want - got).abs().max() / want.abs().max()).item())
            # Terms are added in another order, and torchao divides each operand before the product.
            limit = 2e-6 if dtype == torch.float32 else 2 ** -7
            check(f"{recipe} {dtype}", worst <= limit, f"largest difference {worst:.2e}, limit {limit:.0e}")


# --- a model ---

def llama():
    torch.manual_seed(0)
    return hf.LlamaForCausalLM(hf.LlamaConfig(
        vocab_size=96, hidden_size=64, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=64, initializer_range=0.05))


def rows(n):
    return [[(3 + 7 * i + 3 * j * (1 + i % 3)) % 93 + 3 for j in range(LENGTH)] for i in range(n)]


def torchao_losses(model, recipe, steps):
    convert_to_float8_training(model, config=config_of(recipe),
                               module_filter_fn=lambda m, name: "lm_head" not in name and "lora_" not in name)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses = []
    data = torch.tensor(rows(steps * BATCH)).view(steps, BATCH, -1)
    for ids in data:
        loss = model(input_ids=ids.reshape(1, -1), position_ids=torch.arange(LENGTH).repeat(BATCH)[None],
                     attention_mask=mask_of(BATCH, LENGTH), labels=labels_of(ids)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def mask_of(batch, length):
    """All rows of a batch are one packed row, as here: tensor-wise scales are those of all tokens."""
    document = torch.arange(batch).repeat_interleave(length)
    position = torch.arange(batch * length)
    seen = (document[:, None] == document[None]) & (position[:, None] >= position[None])
    return torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None]


def labels_of(ids):
    labels = ids.clone()
    labels[:, 0] = -100
    return labels.reshape(1, -1)


def train(fsdp, dir, *flags, steps, trained="model.safetensors"):
    """Losses of the steps, the trained weights, and what was printed."""
    metrics, output = dir / "metrics.jsonl", dir / "output"
    run = subprocess.run([
        fsdp, "train", "--model", dir / "model", "--data", dir / "rows.jsonl", "--max-steps", str(steps), "--batch-size",
        str(BATCH), "--optimizer", "sgd", "--momentum", "0", "--lr", str(RATE), "--lr-schedule", "constant", "--no-shuffle",
        "--max-grad-norm", "0", "--metrics", metrics, "--output", output, "--overwrite-output", *flags],
        capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line and "step" in line][:steps]
    return losses, load_file(output / trained), run.stdout


def check_training(fsdp, dir):
    steps = 30
    llama().save_pretrained(dir / "model")
    (dir / "rows.jsonl").write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in rows(steps * BATCH)))
    for recipe in RECIPES:
        model = llama()
        want = torchao_losses(model, recipe, 1)
        before = llama().state_dict()
        _, after, _ = train(fsdp, dir, "--float8-recipe", recipe, steps=1)
        differences = sorted(((after[name] - w).norm() / (w - before[name]).norm()).item()
                             for name, w in model.state_dict().items())
        # A rounding error of float32 can move a value to the other side of a tie; then one term of a sum differs.
        check(f"gradients with {recipe}", differences[len(differences) // 2] <= 1e-5 and differences[-1] <= 1e-2,
              f"difference of an update, median {differences[len(differences) // 2]:.1e}, largest {differences[-1]:.1e}")
        model = llama()
        want = torchao_losses(model, recipe, steps)
        got, _, _ = train(fsdp, dir, "--float8-recipe", recipe, steps=steps)
        worst = max(abs(a - b) / b for a, b in zip(got, want))
        check(f"training with {recipe}", len(got) == steps and worst <= 1e-2,
              f"loss {want[0]:.4f} to {want[-1]:.4f}, largest relative difference of a step {worst:.1e}")


def check_adapter(fsdp, dir):
    """One step of a LoRA adapter over frozen weights in float8, with PEFT's model converted by torchao.

    A value that is halfway between two float8 values may be rounded up here and down there, and then all gradients
    before it differ. So the best of three adapters counts."""
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False)
    for recipe in RECIPES:
        best = (math.inf, math.inf, math.inf)
        for seed in range(3):
            base = llama()
            torch.manual_seed(seed + 3)
            peft.get_peft_model(base, config).save_pretrained(dir / "adapter")
            before = load_file(dir / "adapter" / "adapter_model.safetensors")
            model = peft.PeftModel.from_pretrained(llama(), dir / "adapter", is_trainable=True)
            want = torchao_losses(model, recipe, 1)
            got, after, _ = train(fsdp, dir, "--adapter", dir / "adapter", "--float8-recipe", recipe, steps=1,
                                  trained="adapter_model.safetensors")
            differences = sorted(((after[name] - w).norm() / (w - before[name]).norm()).item()
                                 for name, w in peft.get_peft_model_state_dict(model).items())
            best = min(best, (differences[len(differences) // 2], differences[-1], abs(got[0] / want[0] - 1)))
        check(f"gradients of an adapter with {recipe}", best[0] <= 1e-5 and best[1] <= 1e-2 and best[2] <= 1e-6,
              "difference of an update, median {:.1e}, largest {:.1e}; of the loss {:.1e}".format(*best))


def check_layers(fsdp, dir):
    """The number of layers that are converted, with torchtitan's filter and with Accelerate's."""
    def titan(fqns):
        return lambda m, name: m.in_features % 16 == 0 and m.out_features % 16 == 0 and not any(f in name for f in fqns)
    cases = {"torchtitan": (("--float8-recipe", "tensorwise"), titan(["lm_head"])),
             "filter_fqns": (("--float8-recipe", "rowwise", "--float8-filter-fqns", "mlp,q_proj"),
                             titan(["lm_head", "mlp", "q_proj"])),
             "layer": (("--float8-recipe", "rowwise", "--float8-filter-fqns", "layers.1."), titan(["lm_head", "layers.1."]))}
    for name, (flags, keeps) in cases.items():
        model = convert_to_float8_training(llama(), config=config_of("tensorwise"), module_filter_fn=keeps)
        want = sum(isinstance(m, Float8Linear) for m in model.modules())
        _, _, printed = train(fsdp, dir, *flags, steps=1)
        check(f"layers with {name}", f"float8: {want} linear layers" in printed, f"{want} layers")
    model = llama()
    first, last = find_first_last_linear_layers(model)
    convert_to_float8_training(model, module_filter_fn=lambda m, name: filter_linear_layers(m, name, [first, last]))
    want = sum(isinstance(m, Float8Linear) for m in model.modules())
    _, _, printed = train(fsdp, dir, "--mixed-precision", "fp8", "--fp8-backend", "ao", steps=1)
    check("layers with Accelerate's fp8", f"float8: {want} linear layers" in printed, f"{want} layers")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fsdp", default="build/fsdp")
    parser.add_argument("--library")
    parser.add_argument("--write")
    args = parser.parse_args()
    torch.set_num_threads(1)
    library = Library(args.library or pathlib.Path(args.fsdp).parent / "libfsdp.so")
    if args.write:
        tensors = {}
        for recipe in RECIPES:
            given = operands((24, 32, 48), torch.float32, 7)
            for name, t in zip(("x", "w", "bias", "dy"), given):
                tensors[name] = t
            for name, t in zip(("y", "dx", "dw", "dbias"), torchao_layer(recipe, *given)):
                tensors[f"{recipe}.{name}"] = t.contiguous()
        save_file(tensors, args.write)
    check_operation(library)
    with tempfile.TemporaryDirectory() as dir:
        check_training(args.fsdp, pathlib.Path(dir))
        check_adapter(args.fsdp, pathlib.Path(dir))
        check_layers(args.fsdp, pathlib.Path(dir))
    print(f"check_float8: {failures} failed")
    sys.exit(failures != 0)


if __name__ == "__main__":
    main()
