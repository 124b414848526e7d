#!/usr/bin/env python3
"""Write what other optimizers compute, as golden numbers for tests.

usage: tools/golden_states.py [DIR]

Writes states.json and states.safetensors into DIR (default: tests/golden/states): `<parameter>.start` and
`<parameter>.grads`, the gradients of all steps, then for each case the parameters after each step and the
states at the end. A case that takes more steps has gradients of its own, `<case>.<parameter>.grads`. `large` has as many elements as 8-bit states need. The cases are AdamW8bit of torchao,
Muon of torch.optim, and AdamWScheduleFree of schedulefree. The maps of 8-bit states are those of bitsandbytes.
(The update of AdamW8bit in bitsandbytes is the same, but on a CPU it does not round to the nearest code.)
Needs torch 2.9 or newer, torchao, bitsandbytes, schedulefree and safetensors; the tests do not need this script.
"""
import json
import pathlib
import sys

import bitsandbytes.functional
import schedulefree
import torch
from safetensors.torch import save_file
from torchao.optim.adam import single_param_adam
from torchao.optim.subclass_8bit import OptimState8bit

STEPS = 3
CASES = {
    "adamw_8bit": dict(lr=0.01, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.1),
    "muon": dict(lr=0.02, momentum=0.95, nesterov=True, weight_decay=0.1, adjust_lr_fn="original"),
    "muon_match": dict(lr=0.02, momentum=0.9, nesterov=False, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
    "schedule_free": dict(lr=0.01, betas=[0.9, 0.99], eps=1e-8, weight_decay=0.1, warmup_steps=2),
    "schedule_free_20": dict(lr=0.02, betas=[0.95, 0.99], eps=1e-8, weight_decay=0.02, warmup_steps=6,
                             r=0.5, weight_lr_power=1.5),
}
LONG_STEPS = {"schedule_free_20": 20}


class AdamW8bit:
    """torchao.optim.AdamW8bit without torch.compile."""
    def __init__(self, parameters, lr, betas, eps, weight_decay):
        self.parameters, self.state = parameters, {}
        self.options = (torch.tensor(lr), *betas, weight_decay, eps)
        for p in parameters:
            narrow = p.numel() >= 4096
            self.state[p] = {
                name: OptimState8bit.zeros(p.shape, signed=signed) if narrow else torch.zeros_like(p)
                for name, signed in (("exp_avg", True), ("exp_avg_sq", False))}
        self.steps = torch.tensor(0.0)

    @torch.no_grad()
    def step(self):
        self.steps += 1
        for p in self.parameters:
            moments = self.state[p]
            single_param_adam(p, p.grad, self.steps, moments["exp_avg"], moments["exp_avg_sq"], None,
                              *self.options, IS_ADAMW=True, BF16_STOCHASTIC_ROUND=False)


def create(name, parameters, options):
    if name == "adamw_8bit":
        return AdamW8bit(parameters, **options)
    if name.startswith("muon"):
        return torch.optim.Muon(parameters, **options)
    return schedulefree.AdamWScheduleFree(parameters, **options)


def run(name, options, start, grads, tensors):
    # Muon is for matrices only
    parts = ["tall", "wide"] if name.startswith("muon") else ["large" if name == "adamw_8bit" else "wide", "vector"]
    weights = {part: torch.nn.Parameter(start[part].clone()) for part in parts}
    optimizer = create(name, list(weights.values()), options)
    is_schedule_free = name.startswith("schedule_free")
    if is_schedule_free:
        optimizer.train()
    after = {part: [] for part in parts}
    own = {part: tensors.get(f"{name}.{part}.grads", grads[part]) for part in parts}
    for step in range(LONG_STEPS.get(name, STEPS)):
        for part in parts:
            weights[part].grad = own[part][step].clone()
        optimizer.step()
        for part in parts:
            after[part].append(weights[part].detach().clone())
    for part in parts:
        tensors[f"{name}.{part}.params"] = torch.stack(after[part])
        for key, value in optimizer.state[weights[part]].items():
            if isinstance(value, OptimState8bit):
                number = 1 if key == "exp_avg" else 2
                tensors[f"{name}.{part}.state.state{number}"] = value.codes.clone()
                tensors[f"{name}.{part}.state.absmax{number}"] = value.scale.clone()
            elif torch.is_tensor(value) and value.ndim:
                tensors[f"{name}.{part}.state.{key}"] = value.clone()
    if is_schedule_free:
        optimizer.eval()
        for part in parts:
            tensors[f"{name}.{part}.averaged"] = weights[part].detach().clone()


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/states")
    generator = torch.Generator().manual_seed(11)
    shapes = {"large": (9, 512), "wide": (7, 20), "tall": (24, 9), "vector": (11,)}
    start = {part: torch.randn(shape, generator=generator) for part, shape in shapes.items()}
    grads = {}
    for part, shape in shapes.items():
        # gradients of one matrix have very different sizes, which 8 bits must hold
        size = 10.0 ** (-3 * torch.rand(shape, generator=generator))
        grads[part] = torch.randn((STEPS, *shape), generator=generator) * size
    tensors = {f"{part}.start": start[part] for part in shapes} | {f"{part}.grads": grads[part] for part in shapes}
    for is_signed in (True, False):
        name = "qmap1" if is_signed else "qmap2"
        tensors[name] = bitsandbytes.functional.create_dynamic_map(signed=is_signed)
    for name, steps in LONG_STEPS.items():
        for part in ("wide", "vector"):
            tensors[f"{name}.{part}.grads"] = torch.randn((steps, *shapes[part]), generator=generator)
    for name, options in CASES.items():
        run(name, options, start, grads, tensors)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({key: value.contiguous() for key, value in tensors.items()}, folder / "states.safetensors")
    (folder / "states.json").write_text(json.dumps({"steps": STEPS, "cases": CASES}, indent=1) + "\n")


main()
