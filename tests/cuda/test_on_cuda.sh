#!/bin/sh
# Runs device-neutral test programs on the emulated CUDA device: models that train, clip, step, save
# and load again. Ranks are threads that share one emulated card. The programs here are those that
# take a few seconds each; FSDP_DEVICE=cuda runs any other one by hand. The host's accesses of device
# memory are not checked here (EMU_PROTECT=0), which would take several times as long: the fake device
# checks them (tests/tensor/test_on_fake.sh).
# usage: FSDP_BUILD=build tests/cuda/test_on_cuda.sh
build=${FSDP_BUILD:-build}
case $("$build/tests/cuda/tests" --file test_sum 2>&1 | tail -n 1) in
*"1 skipped") echo "skip: this build has no device cuda"; echo "0 passed, 0 failed, 1 skipped"; exit 0 ;;
esac
export ON_DEVICE=cuda EMU_PROTECT=0 EMU_DEVICES=1
. "$(dirname "$0")/../on_fake.sh"
# More ranks on one card compute the same kernels again.
numbers=without_fsdp_,on_2_ranks_,row_of,batch,beginning,rows_may,bias,alone
on_fake \
    autograd/test_stash train/test_classification models/test_kv_cache optim/test_grad_scaler \
    pretrained/test_load_module state_dict/test_torch_state dtensor/test_redistribute \
    fsdp/test_mixed_precision fsdp/test_summon optim/test_clip_grad models/test_t5_decode \
    state_dict/test_accelerate fsdp/test_fsdp1 autograd/test_ops_clamp_infinite optim/test_adafactor \
    optim/test_optimizer optim/test_narrow_states optim/test_schedule_free optim/test_muon \
    state_dict/test_async_save pretrained/test_model models/test_t5:$numbers \
    models/test_t5_float16 models/test_llama:$numbers fsdp/test_to_empty
