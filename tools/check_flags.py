#!/usr/bin/env python3
"""List what each flag of transformers' Trainer and of its example scripts does in `fsdp train`.

usage: tools/check_flags.py [--fsdp build/fsdp] [--quiet]

Each field of the installed transformers' TrainingArguments and Seq2SeqTrainingArguments, the names that
version 4 had for them, and the model and data arguments of run_summarization.py, run_translation.py,
run_clm.py, run_mlm.py, run_glue.py and run_classification.py are given to `fsdp train`, with a value of the
field's type that is not its default; enumerations with each of their values. `fsdp train` then says whether
the flag works, has no effect (and why), or is refused (and what to use). The exit code is not 0 if a flag is
unknown, if a reason names a flag or a command that does not exist, or if a flag with a missing letter gets
another suggestion than the flag itself. Needs transformers; the tests do not need this script.
"""
import argparse
import dataclasses
import enum
import pathlib
import re
import subprocess
import sys
import tempfile
import typing

from transformers import Seq2SeqTrainingArguments
from transformers.trainer_utils import HubStrategy, IntervalStrategy, SaveStrategy, SchedulerType
from transformers.training_args import OptimizerNames

# Names that transformers 4 had and 5 does not.
OLD = ["evaluation_strategy", "per_gpu_train_batch_size", "per_gpu_eval_batch_size", "warmup_ratio", "fp16_backend",
       "half_precision_backend", "fp16_opt_level", "no_cuda", "use_mps_device", "jit_mode_eval", "use_ipex",
       "logging_dir", "overwrite_output_dir", "save_safetensors", "group_by_length", "tpu_num_cores",
       "tpu_metrics_debug", "past_index", "fsdp_min_num_params", "fsdp_transformer_layer_cls_to_wrap", "torchdynamo",
       "ray_scope", "push_to_hub_model_id", "push_to_hub_organization", "push_to_hub_token", "mp_parameters",
       "include_inputs_for_metrics", "include_tokens_per_second", "split_batches", "dispatch_batches", "sharded_ddp",
       "xpu_backend", "adafactor", "do_train", "do_eval", "do_predict", "log_on_each_node"]
# The arguments of the example scripts, with a value.
SCRIPTS = {
    "model_name_or_path": "m", "config_name": "c", "tokenizer_name": "t", "cache_dir": "d",
    "use_fast_tokenizer": "true", "model_revision": "v2", "token": "t", "use_auth_token": "t",
    "trust_remote_code": "true", "resize_position_embeddings": "true", "ignore_mismatched_sizes": "true",
    "model_type": "gpt2", "config_overrides": "n_embd=10", "dtype": "bfloat16", "torch_dtype": "bfloat16",
    "low_cpu_mem_usage": "true", "lang": "ro", "dataset_name": "xsum", "dataset_config_name": "3.0.0",
    "text_column": "article", "summary_column": "highlights", "train_file": "t.csv", "validation_file": "v.csv",
    "test_file": "t.csv", "overwrite_cache": "true", "preprocessing_num_workers": "4", "max_source_length": "64",
    "max_target_length": "32", "val_max_target_length": "32", "pad_to_max_length": "true", "max_train_samples": "9",
    "max_eval_samples": "9", "max_predict_samples": "9", "num_beams": "4", "ignore_pad_token_for_loss": "false",
    "source_prefix": "translate: ", "forced_bos_token": "ro_RO", "source_lang": "en", "target_lang": "ro",
    "streaming": "true", "block_size": "64", "validation_split_percentage": "10", "keep_linebreaks": "false",
    "task_name": "mrpc", "max_seq_length": "64", "mlm_probability": "0.3", "line_by_line": "true",
    "do_regression": "true", "text_column_names": "a,b", "text_column_delimiter": " ", "label_column_name": "label",
    "remove_splits": "x", "remove_columns": "x", "shuffle_train_dataset": "true", "shuffle_seed": "7",
    "metric_name": "pearsonr", "train_split_name": "x", "validation_split_name": "x", "test_split_name": "x"}
ENUMS = {"optim": OptimizerNames, "lr_scheduler_type": SchedulerType, "eval_strategy": IntervalStrategy,
         "logging_strategy": IntervalStrategy, "save_strategy": SaveStrategy, "hub_strategy": HubStrategy}
# Values where the type alone does not say one.
VALUES = {
    "accelerator_config": ['{"split_batches": true}'], "parallelism_config": ['{"tp_size": 2}'],
    "fsdp": ["full_shard", "full_shard auto_wrap offload", "shard_grad_op", "hybrid_shard auto_wrap", "True"],
    "fsdp_config": ['{"transformer_layer_cls_to_wrap": ["T5Block"], "backward_prefetch": "backward_pre"}',
                    '{"fsdp_min_num_params": 2000, "fsdp_version": 2, "reshard_after_forward": true}'],
    "lr_scheduler_kwargs": ['{"min_lr": 0.00001}', '{"num_cycles": 2}'], "deepspeed": ["ds.json"],
    "gradient_checkpointing_kwargs": ['{"use_reentrant": false}'],
    "activation_checkpointing_kwargs": ['{"use_reentrant": false}'], "liger_kernel_config": ['{"rope": true}'],
    "report_to": ["tensorboard", "none", "all", "wandb"], "log_level": ["info"], "log_level_replica": ["error"],
    "metric_for_best_model": ["loss", "eval_loss", "accuracy", "rouge1"], "optim_args": ["momentum=0.9"],
    "train_sampling_strategy": ["random", "sequential", "group_by_length"], "debug": ["underflow_overflow"],
    "resume_from_checkpoint": ["True", "out/checkpoint-500"], "include_num_input_tokens_seen": ["all"],
    "warmup_steps": ["10", "0.1"], "eval_steps": ["10", "0.1"], "save_steps": ["10", "0.1"],
    "logging_steps": ["10", "0.1"], "include_for_metrics": ["inputs"], "adafactor": ["true"],
    "optim_target_modules": ["all-linear"], "num_train_epochs": ["3.0"], "hub_token": ["t"],
    "generation_config": ["g.json"], "ddp_backend": ["gloo"], "label_names": ["start_positions"],
    "weight_decay": ["0.01"], "label_smoothing_factor": ["0.1"], "warmup_ratio": ["0.1"], "past_index": ["2"],
    "sharded_ddp": ["zero_dp_2"], "tpu_num_cores": ["8"], "fp16_opt_level": ["O2"], "max_grad_norm": ["1.0"],
    "adam_beta1": ["0.8"], "adam_beta2": ["0.98"], "learning_rate": ["5e-5"], "neftune_noise_alpha": ["5"],
    "dispatch_batches": ["true"], "dataloader_prefetch_factor": ["2"], "fsdp_min_num_params": ["2000"],
    "fsdp_transformer_layer_cls_to_wrap": ["T5Block"], "evaluation_strategy": ["epoch"], "do_train": ["true"],
    "do_predict": ["true"], "save_safetensors": ["false", "true"]}


def values_of(field):
    """Values to try for a field of a dataclass: none of them is its default."""
    name = field.name if hasattr(field, "name") else field
    if name in VALUES:
        return VALUES[name]
    if name in ENUMS:
        return [value.value for value in ENUMS[name]]
    if not hasattr(field, "name"):
        return ["true" if name.startswith(("do_", "use_", "no_", "include_", "group_", "overwrite_", "jit_", "log_on",
                                           "tpu_metrics", "split_")) else "4"]
    types = typing.get_args(field.type) or (field.type,)
    if bool in types:
        return ["false" if field.default is True else "true"]
    if int in types:
        return ["4"]
    if float in types:
        return ["0.5"]
    return ["x"]


# What every training needs, and the other names that these options have among the flags below.
NEEDED = {"--model=m": ["model_name_or_path"], "--data=d": ["train_file"], "--output=o": ["output_dir"]}


class Program:
    def __init__(self, path):
        self.path = path
        self.help = {}

    def run(self, *arguments):
        # An empty folder: there is no data and no file of Accelerate.
        with tempfile.TemporaryDirectory() as scratch:
            return subprocess.run([self.path, *arguments], capture_output=True, text=True, cwd=scratch,
                                  env={"HOME": scratch, "FSDP_DEVICE": "cpu"})

    def try_flag(self, flag, value):
        """Returns ("works" | "no effect" | "refused" | "unknown", reason)."""
        given = [word for word, names in NEEDED.items() if flag not in names]
        given.append(f"--{flag}={value}" if value is not None else f"--{flag}")
        done = self.run("train", *given, "--print-config")
        first = done.stderr.strip().split("\n")[0].removeprefix("fsdp train: ")
        if "unknown option" in first:
            return "unknown", first
        if done.returncode != 0:
            return "refused", first
        listed = re.search(r"^# accepted, without effect here:\n((?:#   .*\n)*)", done.stdout, re.M)
        for line in (listed.group(1) if listed else "").split("\n"):
            if "(flag --" in line:
                return "no effect", line.split("): ", 1)[1]
        # What contradicts other options is found by the check, which --print-config leaves out.
        checked = self.run("train", *given)
        message = checked.stderr.strip().split("\n")[0].removeprefix("fsdp train: ")
        return ("refused", message) if checked.returncode == 2 else ("works", "")

    def knows(self, command, flag):
        if command == "train":
            return self.try_flag(flag, None)[0] != "unknown"
        if command not in self.help:
            self.help[command] = self.run(*command.split(), "--help", "all").stdout
        return re.search(rf"--{flag}\b", self.help[command]) is not None

    def wrong_words(self, reason):
        """Flags and commands that a reason names and that do not exist. Flags belong to the command that is
        named before them, else to train."""
        wrong = []
        # "it takes ..." repeats the flag; its own place in the message is not a suggestion
        reason = re.sub(r"^--[a-z0-9_]+: ", "", reason)
        # "(--eval_steps gives --evaluation-steps)" repeats it, too
        reason = re.sub(r" \(--[a-z0-9_]+ gives --[^)]*\)$", "", reason)
        for command, flag in re.findall(r"'?(?:fsdp ([a-z]+(?: [a-z]+)?))?[^'-]*?--([a-z][a-z0-9-]*)", reason):
            command = command.split(" ")[0] or "train"
            if not self.knows(command, flag):
                wrong.append(f"--{flag} of fsdp {command}")
        for command in re.findall(r"'fsdp ([a-z]+)", reason):
            if self.run(command, "--help").returncode != 0:
                wrong.append(f"fsdp {command}")
        return wrong


def check_typing(program, name):
    """A flag that lacks a letter in its middle gets the flag as the suggestion, or none."""
    typed = name[:len(name) // 2] + name[len(name) // 2 + 1:]
    verdict, reason = program.try_flag(typed, "x")
    near = re.search(r"did you mean '--([a-z0-9_-]+)'", reason)
    if verdict != "unknown" or not near or near.group(1).replace("-", "_") == name:
        return None
    return f"--{typed} suggests --{near.group(1)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fsdp", default="build/fsdp")
    parser.add_argument("--quiet", action="store_true", help="print only what is wrong, and the sums")
    options = parser.parse_args()
    program = Program(str(pathlib.Path(options.fsdp).resolve()))
    flags = [(field.name, value) for field in dataclasses.fields(Seq2SeqTrainingArguments)
             for value in values_of(field)]
    known = {name for name, _ in flags}
    flags += [(name, value) for name in OLD if name not in known for value in values_of(name)]
    flags += list(SCRIPTS.items())
    counts, wrong = {}, []
    for name, value in flags:
        verdict, reason = program.try_flag(name, value)
        counts[verdict] = counts.get(verdict, 0) + 1
        if not options.quiet:
            print(f"--{name} {value}: {verdict}" + (f": {reason}" if reason else ""))
        if verdict == "unknown":
            wrong.append(f"--{name}: {reason}")
        if verdict == "refused" or verdict == "no effect":
            wrong += [f"--{name}: its reason names {word}: {reason}" for word in program.wrong_words(reason)]
    for name in sorted({name for name, _ in flags}):
        found = check_typing(program, name)
        if found:
            wrong.append(found)
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())) + f" of {len(flags)} flags")
    for line in wrong:
        print(f"  wrong: {line}")
    print("flags of transformers: " + ("FAIL" if wrong else "ok"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
