#!/bin/sh
# Runs the program itself on the fake device, as scripts use it, and fast test programs of every
# folder that computes values on a device. tests/tensor/test_on_fake.sh has those that wait the
# most.
# usage: FSDP_BUILD=build tests/cli/test_on_fake.sh
. "$(dirname "$0")/../on_fake.sh"
on_fake \
    autograd/test_ops_clamp_infinite autograd/test_ops_embedding autograd/test_ops_linear autograd/test_ops_norm \
    autograd/test_ops_pointwise state_dict/test_accelerate state_dict/test_torch_state fsdp/test_accumulation \
    fsdp/test_behavior fsdp/test_controls fsdp/test_fsdp1 fsdp/test_mixed_precision models/test_bert \
    models/test_gpt2 models/test_llama models/test_t5 models/test_t5_decode models/test_t5_float16 pretrained/test_model \
    cli/test_accelerate.sh cli/test_evaluate.sh cli/test_generate.sh
