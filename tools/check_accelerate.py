#!/usr/bin/env python3
"""Check that fsdp.c and Hugging Face Accelerate (FSDP2) continue each other's runs from
accelerator.save_state() folders, and read each other's configuration files.

usage: tools/check_accelerate.py [--fsdp build/fsdp] [--types llama] [--ranks N] [--read-ranks M]
                                 [--keep DIR]

For each type transformers makes a tiny model. For it and each of SHARDED_STATE_DICT and
FULL_STATE_DICT, `fsdp train --checkpoint-format accelerate` on N ranks writes a folder in the middle
of its run, and accelerator.load_state() on M ranks loads it and takes the remaining steps. Then
Accelerate saves and `fsdp train --resume` continues. The losses must be those of the uninterrupted
run. scaler.pt goes through torch.amp.GradScaler. Files that `fsdp config` writes must be read by
Accelerate's launcher and written again as the same text; files that Accelerate writes must be
explained here, and be converted to FSDP2 as `accelerate to-fsdp2` converts them, and updated as
`accelerate config update` updates them. Needs torch, transformers and accelerate; the tests
do not need this script. --keep writes what Accelerate saved of a very small Llama, its rows and its
losses: tests/fixtures/accelerate/llama. The exit code is not 0 if anything differs.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import transformers as hf

import check_dcp as base
from check_dcp import GLOBAL_BATCH, LR, MIDDLE, ROWS, STEPS

# T5 and GPT-2 tie weights of several units, which FSDP2 under Accelerate refuses.
BLOCKS = {"llama": "LlamaDecoderLayer"}
SMALL = dict(vocab_size=131, hidden_size=8, intermediate_size=12, num_hidden_layers=1,
             num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64)


def prepare(kind, folder, form):
    from accelerate import Accelerator, DistributedType, FullyShardedDataParallelPlugin, PartialState
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, state_dict_type=form, auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=[BLOCKS[kind]], cpu_ram_efficient_loading=False)
    accelerator = Accelerator(cpu=True)
    # Accelerate accepts an fsdp_plugin only if there are GPUs, although everything works without them.
    for state in PartialState(), accelerator.state:
        state.distributed_type = DistributedType.FSDP
    accelerator.state.fsdp_plugin = plugin
    model = base.CONFIGS[kind][0].from_pretrained(folder, attn_implementation="eager").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    return accelerator, *accelerator.prepare(model, optimizer, schedule)


def train_rank(rank, world, kind, folder, form, first, last, load, save, out, port):
    """One rank of Accelerate: steps [first, last), after loading and before saving its state."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                      LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world),
                      ACCELERATE_USE_CPU="true", ACCELERATE_USE_FSDP="true", FSDP_VERSION="2")
    torch.manual_seed(0)
    accelerator, model, optimizer, schedule = prepare(kind, folder, form)
    if load:
        accelerator.load_state(load)
    data, share, losses = base.rows(kind), GLOBAL_BATCH // world, []
    for step in range(first, last):
        begin = step * GLOBAL_BATCH + rank * share
        ids = [data[i % ROWS] for i in range(begin, begin + share)]
        x = torch.tensor([row["input_ids"] for row in ids])
        y = torch.tensor([row.get("labels", row["input_ids"]) for row in ids])
        loss = model(input_ids=x, labels=y).loss
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / world)
    if save:
        accelerator.save_state(save)
    if rank == 0:
        pathlib.Path(out).write_text(json.dumps(losses))
    dist.barrier()
    dist.destroy_process_group()


def accelerate_losses(kind, work, world, form, first, last, port, load=None, save=None):
    out = work / "losses.json"
    mp.spawn(train_rank, nprocs=world, join=True,
             args=(world, kind, work / "model", form, first, last, load, save, out, port))
    return json.loads(out.read_text())


def draw(kind, work, config):
    torch.manual_seed(1)
    base.CONFIGS[kind][0](config).save_pretrained(work / "model")
    (work / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in base.rows(kind)))


def check(kind, form, program, ranks, read_ranks, port):
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        draw(kind, work, base.CONFIGS[kind][1]())
        name = f"{kind}, {form}"
        ours = base.fsdp_losses(program, "adamw", work, ranks, "--save-steps", MIDDLE, "--checkpoint-dir",
                                work / "ours", "--checkpoint-format", "accelerate",
                                "--state-dict-type", form)
        theirs = accelerate_losses(kind, work, read_ranks, form, MIDDLE, STEPS, port,
                                   load=work / "ours" / f"checkpoint-{MIDDLE}")
        good = base.compare(f"{name}: ours on {ranks} ranks, continued by Accelerate on {read_ranks}",
                            theirs, ours[MIDDLE:])
        accelerate_losses(kind, work, ranks, form, 0, MIDDLE, port + 1, save=work / "theirs")
        resumed = base.fsdp_losses(program, "adamw", work, read_ranks, "--resume", work / "theirs")
        good &= base.compare(f"{name}: Accelerate on {ranks} ranks, continued here on {read_ranks}",
                             resumed, ours[MIDDLE:])
        return good


def check_scaler(program, ranks):
    """Load our scaler.pt into torch's GradScaler, and torch's, in a folder of ours, into our run."""
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        draw("llama", work, hf.LlamaConfig(**SMALL))
        fp16 = ["--mixed-precision", "fp16", "--checkpoint-format", "accelerate", "--save-steps", MIDDLE]
        base.fsdp_losses(program, "adamw", work, ranks, *fp16, "--checkpoint-dir", work / "ours")
        saved = work / "ours" / f"checkpoint-{MIDDLE}"
        scaler = torch.amp.GradScaler("cpu")
        scaler.load_state_dict(torch.load(saved / "scaler.pt"))
        good = scaler.get_scale() == torch.load(saved / "scaler.pt")["scale"] > 0
        scaler = torch.amp.GradScaler("cpu", init_scale=512.0, growth_interval=1000)
        scaler.scale(torch.zeros(1))
        (saved / "trainer_state.json").unlink()
        torch.save(scaler.state_dict(), saved / "scaler.pt")
        base.fsdp_losses(program, "adamw", work, ranks, *fp16, "--checkpoint-dir", work / "next", "--resume", saved)
        state = torch.load(work / "next" / f"checkpoint-{STEPS}" / "scaler.pt")
        good &= (state["scale"], state["growth_interval"], state["_growth_tracker"]) == (512.0, 1000, STEPS - MIDDLE)
        print(f"scaler.pt both ways: {'ok' if good else 'FAIL'}")
        return good


CONFIGS = ["", "num_processes=4 mixed_precision=bf16 transformer_layer_cls_to_wrap=T5Block,BertLayer",
           "fsdp_version=1 num_processes=2", "distributed_type=MULTI_CPU num_processes=2",
           "distributed_type=NO", "distributed_type=MULTI_GPU use_fsdp=no num_processes=2",
           "gpu_ids=0,1 num_processes=2 reshard_after_forward=no",
           "fsdp_version=1 sharding_strategy=5 auto_wrap_policy=2 backward_prefetch=2 state_dict_type=2",
           "num_machines=2 num_processes=8 main_process_ip=10.0.0.1 main_process_port=29500 "
           "use_parallelism_config=yes dp_replicate_size=2 dp_shard_size=4 auto_wrap_policy=3"]


def check_configs(program):
    """Read and write configuration files in both directions."""
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.to_fsdp2 import convert_config_to_fsdp2
    import yaml
    good = True
    with tempfile.TemporaryDirectory() as scratch:
        ours, theirs, new = (pathlib.Path(scratch) / name for name in ("ours.yaml", "theirs.yaml", "new.yaml"))
        for answers in CONFIGS:
            subprocess.run([program, "config", "--default", "--config_file", ours, "--overwrite", *answers.split()],
                           check=True, capture_output=True)
            load_config_from_file(str(ours)).to_yaml_file(theirs)
            same = ours.read_text() == theirs.read_text()
            explained = subprocess.run([program, "config", "explain", theirs], capture_output=True, text=True)
            same &= explained.returncode == 0
            config = yaml.safe_load(theirs.read_text())
            # what to-fsdp2 leaves as it is although FSDP2 has no such value is converted here
            known = config.get("fsdp_config", {}).get("fsdp_state_dict_type") != "LOCAL_STATE_DICT"
            if config.get("fsdp_config", {}).get("fsdp_version") == 1 and known:
                subprocess.run([program, "config", "convert", theirs, "--output_file", new, "--overwrite"],
                               check=True, capture_output=True)
                same &= yaml.safe_load(new.read_text()) == convert_config_to_fsdp2(config)
            if not same:
                print(f"  fsdp config {answers}: differs")
            good &= same
    print(f"configuration files both ways: {len(CONFIGS)} files: {'ok' if good else 'FAIL'}")
    return good


OLD = [{"distributed_type": "NO"}, {"distributed_type": "MULTI_GPU", "num_processes": 4, "fp16": True},
       {"distributed_type": "FSDP", "fp16": False, "dynamo_backend": "NO", "main_process_ip": None,
        "fsdp_config": {"fsdp_sharding_strategy": 1, "fsdp_offload_params": False}, "deepspeed_config": {}},
       {"distributed_type": "FSDP", "dynamo_backend": "INDUCTOR", "mixed_precision": "no", "gpu_ids": "0,1",
        "tpu_env": [], "num_processes": 2, "fsdp_config": {"fsdp_version": 2, "fsdp_auto_wrap_policy": "NO_WRAP"}}]


def check_updates(program):
    """Update files of old versions as `accelerate config update` does, as YAML and as JSON."""
    from accelerate.commands.config.config_args import load_config_from_file
    import copy
    import yaml
    good = True
    with tempfile.TemporaryDirectory() as scratch:
        for name in "c.yaml", "c.json":
            ours, theirs = (pathlib.Path(scratch) / f"{who}_{name}" for who in ("ours", "theirs"))
            for config in OLD:
                for path in ours, theirs:
                    text = copy.deepcopy(config)
                    path.write_text(json.dumps(text) if name == "c.json" else yaml.safe_dump(text))
                read = load_config_from_file(str(theirs))
                read.to_json_file(theirs) if name == "c.json" else read.to_yaml_file(theirs)
                subprocess.run([program, "config", "update", "--config_file", ours], check=True,
                               capture_output=True)
                if ours.read_text() != theirs.read_text():
                    print(f"  {name} of {config}: differs\n{ours.read_text()}\n{theirs.read_text()}")
                    good = False
    print(f"configuration files updated: {2 * len(OLD)} files: {'ok' if good else 'FAIL'}")
    return good


def keep(folder, ranks, port):
    with tempfile.TemporaryDirectory() as scratch:
        work = pathlib.Path(scratch)
        draw("llama", work, hf.LlamaConfig(**SMALL))
        for form, name in ("SHARDED_STATE_DICT", "sharded"), ("FULL_STATE_DICT", "full"):
            accelerate_losses("llama", work, ranks, form, 0, MIDDLE, port, save=work / name)
            shutil.copytree(work / name, folder / name, dirs_exist_ok=True)
            port += 1
        losses = accelerate_losses("llama", work, ranks, "FULL_STATE_DICT", 0, STEPS, port)
        (folder / "losses.json").write_text(json.dumps(losses) + "\n")
        shutil.copy(work / "rows.jsonl", folder)
        shutil.copytree(work / "model", folder / "model", dirs_exist_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fsdp", default="build/fsdp")
    parser.add_argument("--types", default="llama")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--read-ranks", type=int, default=1)
    parser.add_argument("--port", type=int, default=29710)
    parser.add_argument("--keep", type=pathlib.Path)
    options = parser.parse_args()
    if options.keep:
        keep(options.keep, options.ranks, options.port)
        return 0
    program = str(pathlib.Path(options.fsdp).resolve())
    good, port = [check_configs(program), check_updates(program), check_scaler(program, options.ranks)], options.port
    for kind in options.types.split(","):
        for form in "SHARDED_STATE_DICT", "FULL_STATE_DICT":
            good.append(check(kind, form, program, options.ranks, options.read_ranks, port))
            port += 10
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
