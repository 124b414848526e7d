#!/bin/sh
# Runs test programs that train, clip, step, save, load and offload again, on the fake device.
# usage: FSDP_BUILD=build tests/tensor/test_on_fake.sh
. "$(dirname "$0")/../on_fake.sh"
on_fake \
    autograd/test_ops_attention autograd/test_ops_loss autograd/test_stash autograd/test_tape \
    state_dict/test_async_save pretrained/test_load_module state_dict/test_state_dict dtensor/test_redistribute \
    fsdp/test_extension fsdp/test_frozen fsdp/test_grad_rows fsdp/test_halved fsdp/test_hsdp \
    fsdp/test_kept_copies fsdp/test_lifecycle fsdp/test_offload fsdp/test_parity fsdp/test_summon \
    fsdp/test_sections fsdp/test_to_empty \
    models/test_bert models/test_kv_cache models/test_t5_sharded optim/test_adafactor optim/test_clip_grad \
    optim/test_grad_scaler optim/test_optimizer train/test_classification
