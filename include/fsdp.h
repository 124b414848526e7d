/**
 * @file
 * fsdp.c: fully sharded data parallel training. One include for everything public.
 */
#pragma once
#include <fsdp/accelerate.h>
#include <fsdp/autograd.h>
#include <fsdp/base.h>
#include <fsdp/batch.h>
#include <fsdp/bert.h>
#include <fsdp/checkpoint_entry.h>
#include <fsdp/ckpt.h>
#include <fsdp/comm.h>
#include <fsdp/data.h>
#include <fsdp/dtensor.h>
#include <fsdp/fsdp.h>
#include <fsdp/gpt2.h>
#include <fsdp/hf.h>
#include <fsdp/hidden_act.h>
#include <fsdp/llama.h>
#include <fsdp/models.h>
#include <fsdp/nn.h>
#include <fsdp/optim.h>
#include <fsdp/options.h>
#include <fsdp/pretrained.h>
#include <fsdp/profile.h>
#include <fsdp/progress.h>
#include <fsdp/state_dict.h>
#include <fsdp/t5.h>
#include <fsdp/tensor.h>
#include <fsdp/text.h>
#include <fsdp/train.h>
