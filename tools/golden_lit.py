#!/usr/bin/env python3
"""Write tiny models in the formats of Lit-LLaMA and LitGPT, as cases for `fsdp verify` and for tests.

usage: tools/golden_lit.py FOLDER

Writes FOLDER/lit_llama, FOLDER/litgpt and FOLDER/litgpt_old (attn.attn, one group of rows for each key head).
Each has a model of random weights (lit_model.pth and a config.json of Hugging Face), inputs.safetensors,
the logits and the loss in expected.safetensors, and the allowed differences in tolerance.json. The logits are
computed here with the formulas of the two programs, from the tensors as they are saved: not with transformers,
and not after a change of names. The embedding and the head have 64 rows, the vocabulary has 50. Needs torch
and safetensors; the tests do not need this script.
"""
import argparse
import json
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

VOCAB, PADDED, WIDTH, HEADS, HEAD, MLP, LAYERS, EPS, THETA = 50, 64, 24, 4, 6, 20, 2, 1e-5, 10000.0
LENGTHS = (13, 7, 1)


def norm(x, scale):
    return scale * x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS)


def rotate(x, in_pairs):
    """x: [heads, T, HEAD]. Lit-LLaMA rotates elements 2i and 2i + 1, LitGPT elements i and i + HEAD / 2."""
    half = HEAD // 2
    angles = torch.outer(torch.arange(x.shape[1]).float(), THETA ** (-torch.arange(half) * 2.0 / HEAD))
    cos, sin = angles.cos(), angles.sin()
    a, b = (x[..., 0::2], x[..., 1::2]) if in_pairs else (x[..., :half], x[..., half:])
    turned = (a * cos - b * sin, b * cos + a * sin)
    return torch.stack(turned, -1).flatten(-2) if in_pairs else torch.cat(turned, -1)


class Format:
    def __init__(self, joined, kv_heads, names, bias):
        self.joined, self.kv_heads, self.names, self.bias = joined, kv_heads, names, bias

    def tensors(self, generator):
        """The state dict that the program saves."""
        def draw(*shape, scale=0.3):
            return torch.randn(*shape, generator=generator) * scale

        n = self.names
        rows = (HEADS + 2 * self.kv_heads) * HEAD
        state = {"lm_head.weight": draw(PADDED, WIDTH), "transformer.wte.weight": draw(PADDED, WIDTH, scale=1.0),
                 f"transformer.ln_f.{n['scale']}": 1 + draw(WIDTH)}
        for i in range(LAYERS):
            block = {f"{n['norm']}_1.{n['scale']}": 1 + draw(WIDTH), f"{n['norm']}_2.{n['scale']}": 1 + draw(WIDTH),
                     f"attn.{self.joined}.weight": draw(rows, WIDTH), f"attn.{n['proj']}.weight":
                     draw(WIDTH, HEADS * HEAD), f"mlp.{n['gate']}.weight": draw(MLP, WIDTH),
                     f"mlp.{n['up']}.weight": draw(MLP, WIDTH), f"mlp.{n['proj']}.weight": draw(WIDTH, MLP)}
            if self.bias:
                block[f"attn.{self.joined}.bias"] = draw(rows)
            state |= {f"transformer.h.{i}.{k}": v for k, v in block.items()}
        return state

    def query_key_value(self, rows):
        """rows: [T, rows of the joined projection]. Returns three tensors [heads, T, HEAD]."""
        t = rows.shape[0]
        if self.joined == "attn":  # groups of LitGPT's older versions
            groups = rows.view(t, self.kv_heads, HEADS // self.kv_heads + 2, HEAD)
            q, k, v = groups.split((HEADS // self.kv_heads, 1, 1), dim=2)
            parts = [x.reshape(t, -1, HEAD) for x in (q, k, v)]
        else:
            split = rows.split([HEADS * HEAD, self.kv_heads * HEAD, self.kv_heads * HEAD], dim=1)
            parts = [x.view(t, -1, HEAD) for x in split]
        return [x.transpose(0, 1) for x in parts]

    def logits(self, state, ids):
        n, in_pairs = self.names, self.joined == "c_attn"
        x = state["transformer.wte.weight"][ids]
        for i in range(LAYERS):
            w = {k.removeprefix(f"transformer.h.{i}."): v for k, v in state.items()}
            rows = F.linear(norm(x, w[f"{n['norm']}_1.{n['scale']}"]), w[f"attn.{self.joined}.weight"],
                            w.get(f"attn.{self.joined}.bias"))
            q, k, v = self.query_key_value(rows)
            q, k = rotate(q, in_pairs), rotate(k, in_pairs)
            k, v = (y.repeat_interleave(HEADS // self.kv_heads, dim=0) for y in (k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + F.linear(y.transpose(0, 1).flatten(1), w[f"attn.{n['proj']}.weight"])
            y = norm(x, w[f"{n['norm']}_2.{n['scale']}"])
            y = F.silu(F.linear(y, w[f"mlp.{n['gate']}.weight"])) * F.linear(y, w[f"mlp.{n['up']}.weight"])
            x = x + F.linear(y, w[f"mlp.{n['proj']}.weight"])
        return F.linear(norm(x, state[f"transformer.ln_f.{n['scale']}"]), state["lm_head.weight"])


LIT_LLAMA = dict(norm="rms", scale="scale", proj="c_proj", gate="c_fc1", up="c_fc2")
LITGPT = dict(norm="norm", scale="weight", proj="proj", gate="fc_1", up="fc_2")
CASES = {"lit_llama": Format("c_attn", HEADS, LIT_LLAMA, False), "litgpt": Format("qkv", 2, LITGPT, False),
         "litgpt_old": Format("attn", 2, LITGPT, True)}


def config_of(case):
    config = dict(hidden_size=WIDTH, intermediate_size=MLP, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                  num_key_value_heads=case.kv_heads, vocab_size=VOCAB, rms_norm_eps=EPS, rope_theta=THETA,
                  max_position_embeddings=64, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)
    if case.bias:  # q, k and v of Qwen2 have biases, o has none
        return dict(config, architectures=["Qwen2ForCausalLM"], model_type="qwen2")
    return dict(config, architectures=["LlamaForCausalLM"], model_type="llama")


def write_case(case, folder):
    generator = torch.Generator().manual_seed(3)
    state = case.tensors(generator)
    model = folder / "model"
    model.mkdir(parents=True, exist_ok=True)
    torch.save({"model": state}, model / "lit_model.pth")
    (model / "config.json").write_text(json.dumps(config_of(case), indent=2) + "\n")
    ids = torch.zeros(len(LENGTHS), max(LENGTHS), dtype=torch.long)
    logits, labels = torch.zeros(*ids.shape, VOCAB), torch.full_like(ids, -100)
    for i, n in enumerate(LENGTHS):
        ids[i, :n] = labels[i, :n] = torch.randint(3, VOCAB, (n,), generator=generator)
        logits[i, :n] = case.logits(state, ids[i, :n])[:, :VOCAB]
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    mask = (labels >= 0).long()
    save_file(dict(input_ids=ids, attention_mask=mask, labels=labels), folder / "inputs.safetensors")
    save_file(dict(logits=logits, loss=loss), folder / "expected.safetensors")
    tolerance = {"suggested": {"logits": {"absolute": 1e-5}, "loss": {"absolute": 1e-5}}}
    (folder / "tolerance.json").write_text(json.dumps(tolerance, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    with torch.no_grad():
        for name, case in CASES.items():
            write_case(case, folder / name)


if __name__ == "__main__":
    main()
