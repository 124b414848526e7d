#!/usr/bin/env python3
"""Check that fsdp.c and PEFT read each other's LoRA adapters and compute the same from them.

usage: tools/check_peft.py [--fsdp build/fsdp] [--models NAME,...] [--configs NAME,...]
       tools/check_peft.py --write tests/golden

For each type of model and each configuration, PEFT adds an adapter with random values to a tiny model
and saves it. `fsdp verify` compares logits, loss and the gradients of the adapter. Then `fsdp train`
trains an adapter of the same configuration with --lora-r and the other options, and saves it. PEFT
must load it without missing or unexpected names, and compute the loss of `fsdp evaluate`. The model
that `fsdp checkpoint merge-adapter` writes must have the weights of merge_and_unload(). For PiSSA, the
adapter and the residual that `fsdp checkpoint init-adapter` writes must be those of PEFT.

With --write, PEFT's numbers for an adapter with DoRA are written to GOLDEN/llama3_dora: logits, loss,
gradients and five steps of AdamW, which the tests compare with `fsdp verify`.

Needs torch, transformers, peft, safetensors; the tests do not need this script. The exit code is not
0 if anything differs.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import peft
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

VOCABULARY = 131
TOLERANCE = {"suggested": {"logits": {"absolute": 4e-5}, "loss": {"absolute": 1e-5},
                           "grad": {"relative_to_tensor_max": 2e-4}}}


def llama():
    return hf.LlamaForCausalLM(hf.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=36, intermediate_size=52, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, head_dim=6, max_position_embeddings=64))


def qwen2():
    return hf.Qwen2ForCausalLM(hf.Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64))


def gpt2():
    return hf.GPT2LMHeadModel(hf.GPT2Config(
        vocab_size=VOCABULARY, n_embd=36, n_layer=3, n_head=3, n_positions=64, embd_pdrop=0, attn_pdrop=0,
        resid_pdrop=0))


def t5(act="relu"):
    return hf.T5ForConditionalGeneration(hf.T5Config(
        vocab_size=VOCABULARY, d_model=36, d_kv=7, d_ff=52, num_layers=2, num_decoder_layers=3, num_heads=5,
        feed_forward_proj=act, relative_attention_num_buckets=8, relative_attention_max_distance=20,
        dropout_rate=0, decoder_start_token_id=0))


def bert():
    return hf.BertForSequenceClassification(hf.BertConfig(
        vocab_size=VOCABULARY, hidden_size=36, num_hidden_layers=3, num_attention_heads=3, intermediate_size=52,
        max_position_embeddings=64, hidden_dropout_prob=0, attention_probs_dropout_prob=0, num_labels=3))


MODELS = {"llama": (llama, "CAUSAL_LM"), "qwen2": (qwen2, "CAUSAL_LM"), "gpt2": (gpt2, "CAUSAL_LM"),
          "t5": (t5, "SEQ_2_SEQ_LM"), "t5_gated": (lambda: t5("gated-gelu"), "SEQ_2_SEQ_LM"),
          "bert": (bert, "SEQ_CLS")}

# Options of LoraConfig, and the same as options of `fsdp train`. A tuple of flags that is None has
# no equivalent there.
CONFIGS = {
    "default": (dict(r=4, lora_alpha=8), ("--lora-r", "4", "--lora-alpha", "8")),
    "all": (dict(r=3, lora_alpha=7, target_modules="all-linear", use_rslora=True),
            ("--lora-r", "3", "--lora-alpha", "7", "--lora-target-modules", "all-linear", "--use-rslora")),
    "bias": (dict(r=5, lora_alpha=10, bias="all"), ("--lora-r", "5", "--lora-alpha", "10", "--lora-bias", "all")),
    "lora_only": (dict(r=2, lora_alpha=3, bias="lora_only", layers_to_transform=[1]),
                  ("--lora-r", "2", "--lora-alpha", "3", "--lora-bias", "lora_only", "--lora-layers-to-transform", "1")),
    "patterns": (dict(r=4, lora_alpha=8, target_modules="all-linear", rank_pattern={"PART": 6},
                      alpha_pattern={r".*1\..*PART": 5}), None),
    "regex": (dict(r=4, lora_alpha=4, target_modules=r".*[02]\..*PART", init_lora_weights="gaussian"),
              ("--lora-r", "4", "--lora-alpha", "4", "--lora-target-modules", r".*[02]\..*PART",
               "--init-lora-weights", "gaussian")),
    "exclude": (dict(r=4, lora_alpha=4, target_modules="all-linear", exclude_modules=["PART"]),
                ("--lora-r", "4", "--lora-alpha", "4", "--lora-target-modules", "all-linear",
                 "--lora-exclude-modules", "PART")),
    "dora": (dict(r=4, lora_alpha=8, target_modules="all-linear", use_dora=True),
             ("--lora-r", "4", "--lora-alpha", "8", "--lora-target-modules", "all-linear", "--use-dora")),
    "pissa": (dict(r=4, lora_alpha=6, target_modules="all-linear", init_lora_weights="pissa"), None),
    "dora_bias": (dict(r=3, lora_alpha=9, bias="lora_only", use_dora=True, use_rslora=True),
                  ("--lora-r", "3", "--lora-alpha", "9", "--lora-bias", "lora_only", "--use-dora", "--use-rslora")),
}
PART = {"llama": "q_proj", "qwen2": "o_proj", "gpt2": "c_fc", "t5": "wo", "t5_gated": "wi_1", "bert": "key"}


def with_part(value, part):
    if isinstance(value, str):
        return value.replace("PART", part)
    if isinstance(value, dict):
        return {with_part(k, part): with_part(v, part) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(with_part(v, part) for v in value)
    return value


def make_inputs(task, generator):
    rows, length = 3, 11
    ids = torch.randint(3, VOCABULARY, (rows, length), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, 7:], ids[1, 7:] = 0, 0
    if task == "SEQ_CLS":
        return dict(input_ids=ids, attention_mask=mask, token_type_ids=torch.zeros_like(ids),
                    labels=torch.randint(0, 3, (rows,), generator=generator))
    if task == "SEQ_2_SEQ_LM":
        labels = torch.randint(3, VOCABULARY, (rows, 6), generator=generator)
        labels[2, 4:] = -100
        return dict(input_ids=ids, attention_mask=mask, labels=labels)
    labels = ids.clone()
    labels[mask == 0] = -100
    return dict(input_ids=ids, attention_mask=mask, labels=labels)


def run(command):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    return result.returncode, result.stdout if not result.returncode else result.stdout + result.stderr


def make_case(folder, task, model, config, inputs=None):
    """Write a folder for `fsdp verify`: the adapter, and the outputs that PEFT computes with it."""
    generator = torch.Generator().manual_seed(1)
    if not inputs:
        inputs = make_inputs(task, generator)
        save_file(inputs, folder.parent / "inputs.safetensors")
    adapted = peft.get_peft_model(model, config)
    with torch.no_grad():
        for name, p in adapted.named_parameters():
            if p.requires_grad:
                noise = torch.randn(p.shape, generator=generator) * 0.2
                p.copy_(p * (1 + noise) if "magnitude" in name else noise)
    adapted.save_pretrained(folder / "adapter")
    path = folder / "adapter" / "adapter_config.json"
    text = json.loads(path.read_text())
    text["base_model_name_or_path"] = "../../model"
    path.write_text(json.dumps(text))
    adapted.eval()
    out = adapted(**inputs)
    out.loss.backward()
    expected = {"logits": out.logits.detach().contiguous(), "loss": out.loss.detach()}
    for name, p in adapted.named_parameters():
        # A key's bias adds the same to all scores of a row, so its gradient is 0 but for rounding.
        if p.requires_grad and not name.endswith("self.key.bias"):
            name = name.replace("_vector.default.weight", "_vector").replace(".default", "").replace(".modules_to_save", "").replace(".base_layer", "")
            expected["grad." + name] = p.grad.contiguous()
    save_file(expected, folder / "expected.safetensors")
    (folder / "tolerance.json").write_text(json.dumps(TOLERANCE))


def check_read(fsdp, folder):
    code, text = run([fsdp, "verify", folder])
    last = text.strip().splitlines()[-1] if text.strip() else "no output"
    if code == 0 and " 0 failed, 0 not compared" in last:
        return []
    return [line for line in text.splitlines() if not line.endswith(": ok")][-20:] or ["no output"]


def check_merged(fsdp, folder, model, adapter):
    merged = folder / "merged"
    code, text = run([fsdp, "checkpoint", "merge-adapter", adapter, merged])
    if code:
        return [text]
    want = peft.PeftModel.from_pretrained(model, adapter).merge_and_unload().state_dict()
    got = type(model).from_pretrained(merged).state_dict()
    return [f"merged {name} differs by {float((got[name] - w).abs().max())}" for name, w in want.items()
            if not torch.allclose(got[name], w, rtol=1e-5, atol=1e-6)]


def write_rows(folder, task, generator):
    rows = []
    for _ in range(12):
        ids = torch.randint(3, VOCABULARY, (9,), generator=generator).tolist()
        if task == "SEQ_CLS":
            rows.append({"input_ids": ids, "label": ids[0] % 3})
        else:
            rows.append({"input_ids": ids, "labels": ids[:5] if task == "SEQ_2_SEQ_LM" else ids})
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path, rows


def loss_of(model, rows, task):
    total, count = 0.0, 0
    for r in rows:
        labels = torch.tensor([r["label"]] if task == "SEQ_CLS" else [r["labels"]])
        n = 1 if task == "SEQ_CLS" else len(r["labels"]) - (task == "CAUSAL_LM")
        with torch.no_grad():
            total += float(model(input_ids=torch.tensor([r["input_ids"]]), labels=labels).loss) * n
        count += n
    return total / count


def check_written(fsdp, folder, task, fresh, flags):
    data, rows = write_rows(folder, task, torch.Generator().manual_seed(2))
    out = folder / "trained"
    code, text = run([fsdp, "train", "--model", folder.parent / "model", "--data", data, "--output", out,
                      "--max-steps", "3", "--batch-size", "2", "--lr", "0.01", *flags])
    if code:
        return [text]
    code, text = run([fsdp, "evaluate", "--model", out, "--data", data, "--json"])
    if code:
        return [text]
    got = json.loads(text)["models"][0]["loss"]
    with torch.random.fork_rng():
        model = peft.PeftModel.from_pretrained(fresh, out).eval()
    names = set(load_file(out / "adapter_model.safetensors"))
    theirs = set(peft.get_peft_model_state_dict(model))
    # With bias="all", PEFT saves the biases of modules_to_save twice.
    theirs = {n for n in theirs if ".modules_to_save." not in n and ".original_module." not in n}
    problems = [f"names differ: {sorted(names ^ theirs)[:4]}"] if names != theirs else []
    want = loss_of(model, rows, task)
    if abs(got - want) > 2e-5 * max(1.0, want):
        problems.append(f"loss of the trained adapter: {got} here, {want} in PEFT")
    return problems


def matrices_of(model):
    """Return {layer: (weight without the adapter, B A)} of a PEFT model."""
    state = model.state_dict()
    for name, a in state.items():
        if ".lora_A." in name:
            layer = name.split(".lora_A.")[0]
            yield layer, state[layer + ".base_layer.weight"], state[name.replace("lora_A", "lora_B")] @ a


def check_pissa(fsdp, folder, load, config):
    """Compare the adapter and the residual of `fsdp checkpoint init-adapter` with those of PEFT."""
    first, residual = folder / "pissa", folder / "residual"
    code, text = run([fsdp, "checkpoint", "init-adapter", folder.parent / "model", first, residual, "--lora-r", config.r,
                      "--lora-alpha", config.lora_alpha, "--lora-target-modules", "all-linear"])
    if code:
        return [text]
    theirs = peft.get_peft_model(load(), config)
    ours = peft.PeftModel.from_pretrained(type(load()).from_pretrained(residual), first)
    problems = []
    if set(theirs.state_dict()) != set(ours.state_dict()):
        problems.append("names differ")
    for (layer, w, update), (_, got_w, got) in zip(matrices_of(theirs), matrices_of(ours), strict=True):
        for what, x, y in ("residual", w, got_w), ("B A", update, got):
            if float((x - y).abs().max()) > 5e-5 * float(x.abs().max()):
                problems.append(f"{layer}: {what} differs by {float((x - y).abs().max())} of {float(x.abs().max())}")
    return problems


def steps_of(model, inputs, rates, world):
    """Return each rank's losses and the norms in steps of AdamW with clipping, and the parameters after them."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rates[0], weight_decay=0.01)
    losses, norms = [], []
    for step, rate in enumerate(rates):
        optimizer.param_groups[0]["lr"] = rate
        local = [model(**{k: v[step, rank] for k, v in inputs.items()}).loss for rank in range(world)]
        (sum(local) / world).backward()
        losses.append([float(loss.detach()) for loss in local])
        norms.append(float(torch.nn.utils.clip_grad_norm_(trained, 1.0)))
        optimizer.step()
        optimizer.zero_grad()
    return losses, norms, {k: v.contiguous() for k, v in peft.get_peft_model_state_dict(model).items()}


def write_golden(golden):
    """Write golden/llama3_dora for the model and the batches of golden/llama3."""
    folder, base = golden / "llama3_dora", golden / "llama3"
    torch.manual_seed(7)
    load = lambda: hf.AutoModelForCausalLM.from_pretrained(base / "model", attn_implementation="eager")
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"], use_dora=True,
                             task_type="CAUSAL_LM")
    folder.mkdir(exist_ok=True)
    make_case(folder, "CAUSAL_LM", load(), config, load_file(base / "inputs.safetensors"))
    path = folder / "adapter" / "adapter_config.json"
    text = json.loads(path.read_text())
    text["base_model_name_or_path"] = "../../llama3/model"
    path.write_text(json.dumps(text, indent=2, sort_keys=True) + "\n")
    (folder / "adapter" / "README.md").unlink(missing_ok=True)
    rates = [0.003, 0.003, 0.003 * 0.7, 0.003 * 0.7, 0.003 * 0.7 * 0.7]
    for world in 1, 2:
        inputs = f"trajectory_inputs_w{world}.safetensors"
        model = peft.PeftModel.from_pretrained(load(), folder / "adapter", is_trainable=True)
        losses, norms, final = steps_of(model, load_file(base / inputs), rates, world)
        trajectory = dict(
            mesh=f"w{world}", world=world, mesh_shape=[world], dtype="float32",
            optimizer=dict(name="AdamW", betas=[0.9, 0.999], eps=1e-8, weight_decay=0.01), clip_grad_norm=1.0,
            schedule=dict(kind="StepLR", lr=0.003, step_size=2, gamma=0.7), accumulation=1, inputs=f"../llama3/{inputs}",
            model="../llama3/model", adapter="adapter", loss=[sum(v) / world for v in losses], grad_norm=norms, lr=rates,
            local_loss=losses)
        lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in trajectory.items())
        (folder / f"trajectory_step_w{world}.json").write_text("{\n" + lines + "\n}\n")
    save_file(final, folder / "final_adapter.safetensors")
    tolerance = dict(TOLERANCE["suggested"], trajectory=dict(
        loss_absolute=5e-5, grad_norm_relative=1e-4, final_params_99_9_percent_absolute=1e-5, final_params_absolute=0.01))
    (folder / "tolerance.json").write_text(json.dumps(dict(suggested=tolerance), indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fsdp", default="build/fsdp")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--configs", default=",".join(CONFIGS))
    parser.add_argument("--write", type=pathlib.Path)
    args = parser.parse_args()
    if args.write:
        write_golden(args.write)
        return
    fsdp = pathlib.Path(args.fsdp).absolute()
    failed = compared = 0
    for name in args.models.split(","):
        make, task = MODELS[name]
        for config_name in args.configs.split(","):
            options, flags = CONFIGS[config_name]
            with tempfile.TemporaryDirectory() as temporary:
                folder = pathlib.Path(temporary) / "case"
                folder.mkdir()
                torch.manual_seed(random.Random(name + config_name).randrange(1 << 30))
                base = make().eval()
                base.save_pretrained(folder.parent / "model")
                options, flags = with_part(options, PART[name]), with_part(flags, PART[name])
                load = lambda: type(base).from_pretrained(folder.parent / "model")
                config = peft.LoraConfig(task_type=task, **options)
                if config.init_lora_weights == "pissa":
                    problems = check_pissa(fsdp, folder, load, config)
                else:
                    make_case(folder, task, load(), config)
                    problems = check_read(fsdp, folder)
                    problems += check_merged(fsdp, folder, load(), folder / "adapter")
                if flags:
                    problems += check_written(fsdp, folder, task, load(), flags)
                compared += 1
                failed += bool(problems)
                print(f"{name} {config_name}: {'ok' if not problems else ''}")
                for p in problems:
                    print("   ", p)
    print(f"{compared} adapters, {failed} differ")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
