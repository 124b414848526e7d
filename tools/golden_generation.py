#!/usr/bin/env python3
"""Write what transformers generates with settings that other golden files do not have, for tests.

usage: tools/golden_generation.py FOLDER [CASE...]      FOLDER: tests/golden/generation
       tools/golden_generation.py --fields      every field of GenerationConfig and what fsdp does with it

The models and the prompts are those of the files t5_greedy.json and llama3_greedy.json in the folder. Each
prompt is generated alone, so that no padding becomes part of it. A case whose ids are those without its
settings would prove nothing; it is an error. Needs torch and transformers; the tests do not need this script.
"""
import json
import pathlib
import re
import sys

import torch
import transformers as hf

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEW = 16

# name: (model, settings)
CASES = {
    "t5_encoder": ("t5", {"encoder_repetition_penalty": 1.7, "encoder_no_repeat_ngram_size": 2}),
    "t5_bias": ("t5", {"num_beams": 3, "encoder_repetition_penalty": 0.6,
                       "sequence_bias": [[[250], -3.5], [[196, 73], 4.0], [[1], -2.0], [[250], -4.5]]}),
    "llama3_encoder": ("llama3", {"encoder_repetition_penalty": 30.0, "encoder_no_repeat_ngram_size": 2}),
    "llama3_bias": ("llama3", {"sequence_bias": [[[300, 2], -5.0], [[2], 1.5], [[86, 300], -7.0],
                                                 [[204, 120, 190, 86], -9.0], [[53, 2], 3.0]]}),
    "llama3_guidance": ("llama3", {"guidance_scale": 2.5}),
    "llama3_negative": ("llama3", {"guidance_scale": 1.6, "negative_prompt_ids": [1, 229, 91, 61, 290, 272, 7],
                                   "repetition_penalty": 1.3}),
    "llama3_guided_beams": ("llama3", {"guidance_scale": 1.7, "num_beams": 3}),
}


def load(folder, name):
    config = hf.AutoConfig.from_pretrained(folder / f"{name}_model")
    kind = hf.AutoModelForSeq2SeqLM if config.is_encoder_decoder else hf.AutoModelForCausalLM
    return kind.from_pretrained(folder / f"{name}_model", dtype=torch.float32).eval()


def guided_by_hand(model, ids, scale, negative, n):
    """Classifier-free guidance without a cache: both sequences are computed whole in each step."""
    free = list(negative or ids[-1:])
    ids = list(ids)
    for _ in range(n):
        with torch.no_grad():
            given = model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
            unconditional = model(torch.tensor([free])).logits[0, -1].log_softmax(-1)
        best = int((scale * (given - unconditional) + unconditional).argmax())
        ids.append(best)
        free.append(best)
        if best in ([model.generation_config.eos_token_id]
                    if isinstance(model.generation_config.eos_token_id, int) else model.generation_config.eos_token_id):
            break
    return ids


class GuidanceOfBeams(hf.LogitsProcessor):
    """Classifier-free guidance without a cache. The unconditional sequence of a beam is computed whole from
    the ids of the beam, because transformers' own does not follow the order of the beams."""

    def __init__(self, model, scale, negative, prompt):
        self.model, self.scale, self.free, self.length = model, scale, negative or prompt[-1:], len(prompt)

    def __call__(self, input_ids, scores):
        free = torch.tensor([self.free]).expand(len(input_ids), -1)
        free = torch.cat([free, input_ids[:, self.length:]], dim=1)
        with torch.no_grad():
            unconditional = self.model(free).logits[:, -1].log_softmax(-1)
        return self.scale * (scores.log_softmax(-1) - unconditional) + unconditional


def generate(model, prompt, settings):
    settings = dict(settings)
    negative = settings.pop("negative_prompt_ids", None)
    beams = settings.get("num_beams", 1)
    if beams > 1 and "guidance_scale" in settings:
        guidance = GuidanceOfBeams(model, settings.pop("guidance_scale"), negative, prompt)
        settings["logits_processor"] = hf.LogitsProcessorList([guidance])
        negative = None
    out = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                         max_new_tokens=NEW, do_sample=False, return_dict_in_generate=True, output_scores=True,
                         num_return_sequences=beams,
                         negative_prompt_ids=torch.tensor([negative]) if negative else None, **settings)
    rows = out.sequences.tolist()
    if beams > 1:
        eos = model.generation_config.eos_token_id
        pad = model.generation_config.pad_token_id
        return [strip(row, pad, eos) for row in rows], out.sequences_scores.tolist()
    return rows, None


def strip(row, pad, eos):
    """A beam without the padding after its end."""
    start = row[:1]
    body = row[1:]
    if eos in body:
        return start + body[:body.index(eos) + 1]
    while body and body[-1] == pad:
        body.pop()
    return start + body


def write_case(folder, name, model_name, settings):
    model = load(folder, model_name)
    prompts = json.loads((folder / f"{model_name}_greedy.json").read_text())["prompts"]
    results = [generate(model, prompt, settings) for prompt in prompts]
    plain = [generate(model, prompt, {"num_beams": settings.get("num_beams", 1)})[0] for prompt in prompts]
    if [rows for rows, _ in results] == plain:
        sys.exit(f"{name}: the settings change nothing")
    if settings.get("guidance_scale") and "repetition_penalty" not in settings and "num_beams" not in settings:
        by_hand = [guided_by_hand(model, prompt, settings["guidance_scale"],
                                  settings.get("negative_prompt_ids"), NEW) for prompt in prompts]
        if by_hand != [rows[0] for rows, _ in results]:
            sys.exit(f"{name}: transformers does not compute guidance as its paper says")
    case = {"model": f"{model_name}_model", "prompts": prompts, "max_new_tokens": NEW, "do_sample": False, **settings,
            "sequences": [rows[0] for rows, _ in results]}
    if results[0][1]:
        case["all_sequences"] = [rows for rows, _ in results]
        case["all_scores"] = [scores for _, scores in results]
        case["smallest_score_gap"] = min(a - b for _, scores in results for a, b in zip(scores, scores[1:]))
    (folder / f"{name}.json").write_text(json.dumps(case) + "\n")
    print(f"{name}.json: {sum(a != b for (a, _), b in zip(results, plain))} of {len(prompts)} prompts get other ids")


def print_fields():
    """Compare the fields of GenerationConfig with the keys that src/models/generation_config.c knows."""
    source = (ROOT / "src/models/generation_config.c").read_text()
    refused = set(re.findall(r'"(\w+)"', source[source.index("} unsupported[] = {"):source.index("static bool is_neutral")]))
    known = set(re.findall(r'"(\w+)"', source[source.index("known[] = {"):source.index("static bool is_known")]))
    options = (ROOT / "src/cli/generation_options.h").read_text()
    nothing = {name.replace("-", "_") for name in re.findall(r'FSDP_NOT_A_S\w+\("([\w-]+)"', options)}
    header = (ROOT / "src/models/generation_config.h").read_text()
    members = {name for name in known if re.search(rf"^ .*\b{name}s?\b.*;", header, re.M)}
    flags = {name.replace("-", "_") for name in re.findall(r'\{\.name = "([\w-]+)"', options)}
    missing = 0
    for field in hf.GenerationConfig().__dict__:
        state = ("works" if field in flags - refused - nothing or field in members else "named, not supported" if field in refused
                 else "changes no text" if field in known else "UNKNOWN")
        missing += state == "UNKNOWN" and not field.startswith("_")
        print(f"{field:34} {state}")
    sys.exit(1 if missing else 0)


def main():
    if sys.argv[1:2] == ["--fields"]:
        print_fields()
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for name in sys.argv[2:] or CASES:
        write_case(pathlib.Path(sys.argv[1]), name, *CASES[name])


if __name__ == "__main__":
    main()
