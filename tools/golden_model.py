#!/usr/bin/env python3
"""Write what transformers computes with a tiny model of random weights, as a case for `fsdp verify` and for tests.

usage: tools/golden_model.py NAME CASE

NAME is a type that tools/check_hf.py knows. The model has the keys of that type, but its sizes are smaller
and odd, so that the files stay small. Writes into the folder CASE: model; inputs.safetensors, rows of 13, 7
and 1 ids; logits, hidden states, loss and every gradient in expected.safetensors; and the allowed
differences in tolerance.json. Needs torch, transformers, safetensors; the tests do not need this script.
"""
import argparse
import json
import pathlib

import torch
import transformers as hf
from safetensors.torch import save_file

from check_hf import TYPES, draw_batch, is_t5, make, no_cache, write_model

T5 = dict(vocab_size=17, d_model=15, d_kv=5, d_ff=7, num_layers=2, num_decoder_layers=2, num_heads=3)
LLAMA = dict(vocab_size=17, hidden_size=15, intermediate_size=7, num_attention_heads=3,
             num_key_value_heads=1, head_dim=6)
BERT = dict(vocab_size=17, hidden_size=15, num_hidden_layers=2, num_attention_heads=3, intermediate_size=7,
            max_position_embeddings=16)
TOLERANCE = {"logits": {"absolute": 2e-5}, "last_hidden": {"absolute": 2e-5},
             "encoder_last_hidden": {"absolute": 2e-5}, "loss": {"absolute": 1e-5},
             "grad": {"relative_to_tensor_max": 3e-5}, "inv_freq": {"relative_to_tensor_max": 1e-6}}


def small(config):
    sizes = T5 if is_t5(config) else BERT if config.model_type == "bert" else LLAMA
    if getattr(config, "rope_parameters", None) and config.rope_parameters["rope_type"] == "yarn":
        sizes = dict(sizes, head_dim=16)  # enough frequencies for a ramp
    for key, value in sizes.items():
        setattr(config, key, value)
    return config


def outputs_of(model, batch):
    out = model(**batch, output_hidden_states=True, **no_cache(model))
    out.loss.backward()
    expected = {"logits": out.logits.detach().contiguous(), "loss": out.loss.detach()}
    if is_t5(model.config):
        expected["encoder_last_hidden"] = out.encoder_last_hidden_state.detach().contiguous()
        expected["last_hidden"] = out.decoder_hidden_states[-1].detach().contiguous()
    else:
        expected["last_hidden"] = out.hidden_states[-1].detach().contiguous()
        if hasattr(model.base_model, "rotary_emb"):
            expected["inv_freq"] = model.base_model.rotary_emb.original_inv_freq.contiguous()
    for name, p in model.named_parameters():
        expected[f"grad.{name}"] = p.grad.contiguous()
    return expected


def zero_gradients(expected):
    """Names of gradients that are zero except for rounding, because softmax cancels them."""
    largest = max(v.abs().max() for k, v in expected.items() if k.startswith("grad."))
    return [k.removeprefix("grad.") for k, v in expected.items()
            if k.startswith("grad.") and v.abs().max() < 1e-6 * largest]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=TYPES, metavar="NAME")
    parser.add_argument("case", type=pathlib.Path)
    args = parser.parse_args()
    hf.logging.disable_progress_bar()
    hf.logging.set_verbosity_error()
    generator = torch.Generator().manual_seed(1)
    model = make(small(TYPES[args.name]()), generator)
    batch = draw_batch(model.config, generator)
    args.case.mkdir(parents=True, exist_ok=True)
    write_model(model, args.case / "model")
    save_file(batch, args.case / "inputs.safetensors")
    expected = outputs_of(model, batch)
    save_file(expected, args.case / "expected.safetensors")
    tolerance = {"suggested": TOLERANCE, "zero_gradients": zero_gradients(expected)}
    (args.case / "tolerance.json").write_text(json.dumps(tolerance, indent=2) + "\n")


if __name__ == "__main__":
    main()
