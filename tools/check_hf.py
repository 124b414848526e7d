#!/usr/bin/env python3
"""Check that fsdp.c and transformers read each other's folders and compute the same from them.

usage: tools/check_hf.py [--fsdp build/fsdp] [--types NAME,...] [--ranks N] [DIR...]

For each type transformers makes a tiny model of odd sizes and writes it in each form in circulation:
one safetensors file, several with an index, pytorch_model.bin, and with the names of old versions.
`fsdp verify` computes the logits and loss of each, and the gradients of the first. Then `fsdp train`
runs a few steps on N ranks and saves. transformers must load the result without missing or unexpected
names, and both must compute the same logits and generate the same ids.

Each DIR is a model folder, e.g. the --output of `fsdp train`, which is only loaded and compared.
Needs torch, transformers, safetensors; the tests do not need this script. The exit code is not 0 if
anything differs.
"""
import argparse
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers as hf
from safetensors.torch import save_file

LOGITS, LOSS, GRADIENT = 2e-5, 2e-5, 2e-4  # relative: to the largest logit, the loss, each tensor's max
SEQ2SEQ, CAUSAL, CLASSIFICATION, MASKED = "seq2seq", "causal-lm", "classification", "masked-lm"
MODELS = {"t5": (SEQ2SEQ, hf.T5ForConditionalGeneration),
          "mt5": (SEQ2SEQ, hf.MT5ForConditionalGeneration),
          "umt5": (SEQ2SEQ, hf.UMT5ForConditionalGeneration),
          "llama": (CAUSAL, hf.LlamaForCausalLM), "mistral": (CAUSAL, hf.MistralForCausalLM),
          "qwen2": (CAUSAL, hf.Qwen2ForCausalLM), "qwen3": (CAUSAL, hf.Qwen3ForCausalLM),
          "gpt2": (CAUSAL, hf.GPT2LMHeadModel),
          "bert": (CLASSIFICATION, hf.BertForSequenceClassification),
          "BertForMaskedLM": (MASKED, hf.BertForMaskedLM)}


def model_of(config):
    """Task and class, by the class that the configuration names or else by its model_type."""
    return MODELS.get((config.architectures or [""])[0], MODELS[config.model_type])


# --- configurations ---

def bert(**more):
    return hf.BertConfig(**dict(dict(
        vocab_size=131, hidden_size=36, num_hidden_layers=3, num_attention_heads=3,
        intermediate_size=51, max_position_embeddings=40, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0), **more))


def t5(config_class=hf.T5Config, **more):
    return config_class(**dict(dict(
        vocab_size=131, d_model=36, d_kv=7, d_ff=51, num_layers=2, num_decoder_layers=3,
        num_heads=5, relative_attention_num_buckets=8, relative_attention_max_distance=20,
        dropout_rate=0.0, decoder_start_token_id=0), **more))


def decoder_only(config_class, **more):
    return config_class(**dict(dict(
        vocab_size=131, hidden_size=36, intermediate_size=51, num_hidden_layers=3,
        num_attention_heads=6, num_key_value_heads=6, max_position_embeddings=64,
        bos_token_id=1, eos_token_id=2, tie_word_embeddings=False), **more))


LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
YARN_ROPE = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
             "original_max_position_embeddings": 16}
YARN_NUMBERS = dict(YARN_ROPE, beta_fast=3, beta_slow=0.25, mscale=0.8, mscale_all_dim=0.3, truncate=False)
DYNAMIC_ROPE = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 3.0}
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
TYPES = {
    "t5": lambda: t5(),
    "t5-v1_1": lambda: t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "t5-gated-silu": lambda: t5(feed_forward_proj="gated-silu"),
    "t5-gelu": lambda: t5(feed_forward_proj="gelu", tie_word_embeddings=False),
    "mt5": lambda: t5(hf.MT5Config),
    "umt5": lambda: t5(hf.UMT5Config),
    "umt5-unscaled": lambda: t5(hf.UMT5Config, tie_word_embeddings=False,
                                feed_forward_proj="gated-gelu_pytorch_tanh"),
    "llama": lambda: decoder_only(hf.LlamaConfig),
    "llama-gqa": lambda: decoder_only(hf.LlamaConfig, num_key_value_heads=2, head_dim=10),
    "llama-rope3": lambda: decoder_only(hf.LlamaConfig, num_key_value_heads=3,
                                        rope_parameters=LLAMA3_ROPE),
    "llama-tied": lambda: decoder_only(hf.LlamaConfig, tie_word_embeddings=True),
    "llama-bias": lambda: decoder_only(hf.LlamaConfig, attention_bias=True, mlp_bias=True),
    "mistral": lambda: decoder_only(hf.MistralConfig, num_key_value_heads=2, sliding_window=5),
    "qwen2": lambda: decoder_only(hf.Qwen2Config, num_key_value_heads=2, tie_word_embeddings=True),
    "llama-yarn": lambda: decoder_only(hf.LlamaConfig, head_dim=16, rope_parameters=YARN_ROPE),
    "llama-yarn-numbers": lambda: decoder_only(hf.LlamaConfig, head_dim=16, rope_parameters=YARN_NUMBERS),
    "llama-dynamic": lambda: decoder_only(hf.LlamaConfig, max_position_embeddings=8,
                                          rope_parameters=DYNAMIC_ROPE),
    "qwen2-mixed": lambda: decoder_only(hf.Qwen2Config, num_key_value_heads=2, use_sliding_window=True,
                                        sliding_window=4, layer_types=MIXED),
    "qwen3": lambda: decoder_only(hf.Qwen3Config, num_key_value_heads=2, head_dim=10),
    "qwen3-mixed": lambda: decoder_only(hf.Qwen3Config, num_key_value_heads=3, head_dim=4,
                                        attention_bias=True, use_sliding_window=True, sliding_window=3,
                                        layer_types=MIXED, tie_word_embeddings=True),
    "gpt2": lambda: hf.GPT2Config(
        vocab_size=131, n_positions=40, n_embd=36, n_layer=3, n_head=3, n_inner=51, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2),
    "bert": lambda: bert(num_labels=3),
    "bert-mlm": lambda: bert(architectures=["BertForMaskedLM"], hidden_act="gelu_new"),
}


# --- models ---

def is_t5(config):
    return model_of(config)[0] == SEQ2SEQ


def has_own_head(config):
    """T5 v1.1 has its own head, although transformers 5 calls it tied until the weights differ."""
    return is_t5(config) and not getattr(config, "scale_decoder_outputs", False)


def draw_weights(model, generator):
    """Weights far from an initialization, so every one of them affects the logits."""
    for name, p in model.named_parameters():
        drawn = torch.randn(p.shape, generator=generator)
        if p.ndim == 1:
            p.data = 0.2 * drawn + (0.0 if name.endswith("bias") else 1.0)
        elif "embed" in name or "wte" in name or "wpe" in name:
            p.data = 0.5 * drawn
        elif not is_t5(model.config):  # T5's attention is not scaled, its first weights are
            p.data = drawn / math.sqrt(p.shape[0 if "c_" in name else 1])


def make(config, generator):
    model = model_of(config)[1](config)
    draw_weights(model, generator)
    if has_own_head(config):
        head = torch.randn(model.lm_head.weight.shape, generator=generator)
        with tempfile.TemporaryDirectory() as folder:
            write_tensors(model, folder, dict(model.state_dict(), **{"lm_head.weight": head / 6}))
            return load(folder)
    model.set_attn_implementation("eager")
    return model.eval()


def write_tensors(model, folder, tensors):
    """Write a folder with exactly these tensors."""
    pathlib.Path(folder).mkdir(exist_ok=True)
    model.config.save_pretrained(folder)
    save_file({k: v.clone() for k, v in tensors.items()}, f"{folder}/model.safetensors",
              {"format": "pt"})


def load(folder):
    """Load the model and check its names strictly."""
    config = hf.AutoConfig.from_pretrained(folder)
    model, info = model_of(config)[1].from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    bad = {k: sorted(v) for k, v in info.items() if v}
    assert not bad, f"{folder}: transformers reports {bad}"
    return model.eval()


# --- forms of a folder ---

def write_model(model, folder):
    """As save_pretrained() writes it."""
    model.save_pretrained(folder)


def write_pickled(model, folder):
    folder.mkdir()
    model.config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")


OLD_BUFFERS = {
    "gpt2": {"h.0.attn.bias": torch.ones(1, 1, 40, 40), "h.0.attn.masked_bias": torch.tensor(-1e4)},
    "llama": {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(3)},
    "bert": {"bert.embeddings.position_ids": torch.arange(40)[None],
             "cls.predictions.bias": torch.ones(131)},
}
OLD_MLM = {"bert.embeddings.position_ids": torch.arange(40)[None]}


def old_name(model_type, name):
    if model_type == "gpt2":
        return name.removeprefix("transformer.")
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias",
                                                                       "LayerNorm.beta")


def write_old(model, folder):
    """As old versions wrote it: GPT-2 without prefix, BERT's LayerNorm with gamma and beta, buffers."""
    kind = model.config.model_type
    kept = {k: v for k, v in model.state_dict().items()
            if not ("decoder" in k or k == "lm_head.weight") or not model.config.tie_word_embeddings}
    write_tensors(model, folder, {**{old_name(kind, k): v for k, v in kept.items()},
                                  **(OLD_MLM if model_of(model.config)[0] == MASKED else OLD_BUFFERS[kind])})


def write_bare(model, folder):
    """The model without its head, if the head is tied."""
    model.base_model.save_pretrained(folder)


FORMS = {
    "safetensors": write_model,
    "sharded": lambda model, folder: model.save_pretrained(folder, max_shard_size="20KB"),
    "pytorch_model.bin": write_pickled,
    "old names": write_old,
    "bare": write_bare,
}


def forms_of(model):
    config = model.config
    forms = ["safetensors", "sharded", "pytorch_model.bin"]
    if config.model_type in OLD_BUFFERS:
        forms.append("old names")
    if model_of(config)[0] == CAUSAL and config.tie_word_embeddings:
        forms.append("bare")
    return forms


# --- comparing ---

def draw_batch(config, generator):
    """Rows of 13, 7 and 1 ids, padded on the right; T5's targets have 9, 4 and 2."""
    source, target = (13, 7, 1), (9, 4, 2)
    task = model_of(config)[0]

    def ids(lengths, fill):
        out = torch.full((len(lengths), max(lengths)), fill)
        for i, n in enumerate(lengths):
            out[i, :n] = torch.randint(3, config.vocab_size, (n,), generator=generator)
        return out

    batch = dict(input_ids=ids(source, 0))
    batch["attention_mask"] = (torch.arange(max(source)) < torch.tensor(source)[:, None]).long()
    if task == SEQ2SEQ:
        batch["labels"] = ids(target, -100)
    elif task == MASKED:
        chosen = torch.rand(batch["input_ids"].shape, generator=generator) < 0.3
        batch["labels"] = torch.where(chosen & batch["attention_mask"].bool(), batch["input_ids"], -100)
        batch["input_ids"][chosen] = 4
        batch["token_type_ids"] = batch["attention_mask"] * (torch.arange(max(source)) > 4)
    elif task == CAUSAL:
        batch["labels"] = torch.where(batch["attention_mask"].bool(), batch["input_ids"], -100)
    else:
        batch["labels"] = torch.tensor([2, 0, 1])
        batch["token_type_ids"] = batch["attention_mask"] * (torch.arange(max(source)) > 4)
    return batch


def no_cache(model):
    """transformers sizes T5's cache by the encoder's layers, which fails where the decoder has more."""
    return dict(use_cache=False) if model.can_generate() else {}


def expected_of(model, batch, with_gradients):
    model.zero_grad()
    out = model(**batch, **no_cache(model))
    expected = {"logits": out.logits.detach().contiguous(), "loss": out.loss.detach()}
    if with_gradients:
        out.loss.backward()
        largest = max(p.grad.abs().max() for p in model.parameters())
        for name, p in model.named_parameters():
            if p.grad.abs().max() > 1e-6 * largest:  # others are zero except for rounding
                expected[f"grad.{name}"] = p.grad.contiguous()
    return expected


def verify(args, folder, model, batch, with_gradients):
    """Write a case for this batch and compare it with fsdp: the worst difference of each kind, and whether all pass."""
    expected = expected_of(model, batch, with_gradients)
    scale = {"logits": expected["logits"].abs().max().item(), "loss": expected["loss"].item(),
             "grad": 1.0}
    tolerance = {"logits": {"absolute": LOGITS * scale["logits"]},
                 "loss": {"absolute": LOSS * scale["loss"]},
                 "grad": {"relative_to_tensor_max": GRADIENT}}
    with tempfile.TemporaryDirectory() as case:
        case = pathlib.Path(case)
        (case / "model").symlink_to(pathlib.Path(folder).resolve())
        save_file(batch, case / "inputs.safetensors")
        save_file(expected, case / "expected.safetensors")
        (case / "tolerance.json").write_text(json.dumps({"suggested": tolerance}))
        run = subprocess.run([args.fsdp, "verify", str(case), "--json"], capture_output=True,
                             text=True)
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    worst = {}
    for line in lines:
        if "difference" in line:
            kind = line["quantity"].split(".")[0]
            worst[kind] = max(worst.get(kind, 0.0), line["difference"] / scale[kind])
    failed = [line["quantity"] for line in lines if line.get("outcome") not in (None, "ok")]
    ok = run.returncode == 0 and not failed and {"logits", "loss"} <= set(worst)
    return worst, ok, "" if ok else f"{' '.join(failed)} {run.stderr.strip()}"


def generate(args, folder, model, batch):
    """Check that greedy search gives the same ids. Only T5 runs without a cache: with dynamic rope,
    the keys of a cache keep the frequencies with which they were computed, there as here."""
    prompts = [row[m.bool()].tolist() for row, m in zip(batch["input_ids"], batch["attention_mask"])]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(prompts, file)
        file.flush()
        run = subprocess.run([args.fsdp, "generate", "--model", str(folder), "--input-ids",
                              file.name, "--max-new-tokens", "12", "--json"],
                             capture_output=True, text=True)
    if run.returncode:
        return False, f"exit status {run.returncode}: {run.stderr.strip()}"
    got = [json.loads(line)["ids"] for line in run.stdout.splitlines()]
    for prompt, ids in zip(prompts, got):
        want = model.generate(torch.tensor([prompt]), max_new_tokens=12, num_beams=1,
                              do_sample=False, **(no_cache(model) if is_t5(model.config) else {}))[0].tolist()
        if ids != want:
            return False, f"{prompt}: fsdp {ids}, transformers {want}"
    return True, ""


# --- training ---

def write_rows(config, path, generator):
    """Eight rows as token ids."""
    task = model_of(config)[0]
    with open(path, "w") as file:
        for i in range(8):
            ids = torch.randint(3, config.vocab_size, (5 + i,), generator=generator).tolist()
            row = dict(input_ids=ids)
            if task == MASKED:
                row["labels"] = [x if k % 3 == 1 else -100 for k, x in enumerate(ids)]
            if task == SEQ2SEQ:
                row["labels"] = ids[:4]
            elif task == CLASSIFICATION:
                row["label"] = i % 3
            print(json.dumps(row), file=file)


def train(args, folder, config, output, generator):
    rows = output.with_suffix(".jsonl")
    write_rows(config, rows, generator)
    return subprocess.run(
        [args.fsdp, "launch", "-n", str(args.ranks), "train", "--task",
         model_of(config)[0], "--model", str(folder), "--data", str(rows), "--output",
         str(output), "--max-steps", "3", "--batch-size", "2", "--lr", "0.01",
         "--threads-per-rank", "1"], capture_output=True, text=True)


def changed(model, other):
    """Check that training changed every weight."""
    old = dict(model.named_parameters())
    same = [n for n, p in other.named_parameters() if torch.equal(p, old[n])]
    return f"training left {same} as they were" if same else ""


# --- the table ---

class Table:
    def __init__(self):
        self.failed = False
        self.line("model", "what", "logits", "loss", "gradient", "result")

    def line(self, *columns):
        print("{:<12} {:<22} {:>9} {:>9} {:>9}  {}".format(*columns), flush=True)

    def add(self, name, what, worst, ok, text):
        self.failed |= not ok
        self.line(name, what, *(f"{worst[k]:.1e}" if k in worst else "" for k in
                                ("logits", "loss", "grad")), "ok" if ok else f"FAILED: {text}")


def check_loaded(args, table, name, what, folder, model, batch, with_gradients=False):
    table.add(name, what, *verify(args, folder, model, batch, with_gradients))
    if model.can_generate():
        table.add(name, f"{what}, generated", {}, *generate(args, folder, model, batch))


def check_type(args, table, name, work):
    generator = torch.Generator().manual_seed(1)
    model = make(TYPES[name](), generator)
    batch = draw_batch(model.config, generator)
    for i, form in enumerate(forms_of(model)):
        FORMS[form](model, work / form)
        table.add(name, form, *verify(args, work / form, model, batch, i == 0))
    output = work / "trained"
    run = train(args, work / "safetensors", model.config, output, generator)
    if run.returncode:
        table.add(name, "trained", {}, False, run.stderr.strip())
        return
    trained = load(output)
    text = changed(model, trained)
    if text:
        table.add(name, "trained", {}, False, text)
    check_loaded(args, table, name, "trained", output, trained, batch)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fsdp", default="build/fsdp")
    parser.add_argument("--types", default="", help=f"some of {','.join(TYPES)}; default all, or "
                                                    "none where folders are given")
    parser.add_argument("--ranks", type=int, default=2, help="of fsdp train")
    parser.add_argument("folders", nargs="*", metavar="DIR")
    args = parser.parse_args()
    names = args.types.split(",") if args.types else [] if args.folders else list(TYPES)
    unknown = set(names) - set(TYPES)
    if unknown:
        parser.error(f"unknown type {', '.join(sorted(unknown))} (known: {', '.join(TYPES)})")
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    table = Table()
    for name in names:
        with tempfile.TemporaryDirectory() as work:
            check_type(args, table, name, pathlib.Path(work))
    for folder in args.folders:
        model = load(folder)
        batch = draw_batch(model.config, torch.Generator().manual_seed(1))
        check_loaded(args, table, pathlib.Path(folder).name, "as it is", folder, model, batch, True)
    sys.exit(table.failed)


if __name__ == "__main__":
    main()
