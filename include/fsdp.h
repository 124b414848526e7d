/**
 * @file
 * fsdp.c: fully sharded data parallel training of Hugging Face models, in C17.
 *
 * Introduction
 *
 *   N ranks train one model. They are processes that `fsdp launch -n N PROGRAM` starts, and all of
 *   them call the same functions in the same order. Parameters, gradients and optimizer state are
 *   split over the ranks. A unit is a set of parameters, usually those of one transformer block.
 *   Before its forward, and again before its backward, a unit is gathered: every rank gets the
 *   unit's whole parameters. They are freed afterwards. Terms, defaults and file formats are
 *   PyTorch's.
 *
 *   Every function that can fail returns fsdp_status. After a failure, fsdp_last_error() returns
 *   the message. FSDP_TRY() returns the status of a failed call from the calling function.
 *   "Collective" in a comment means that all ranks of the group must call the function, with the
 *   same arguments unless the comment says otherwise.
 *
 * The calls that train a model
 *
 *     fsdp_init_process_group(NULL, &group);                              this rank and its peers
 *     fsdp_default_device(group, &device);                                a GPU, or the CPU
 *     fsdp_pretrained_open("t5-base", false, &weights);                   a Hugging Face folder
 *     fsdp_model_create(&weights.config, &model);                         modules without memory
 *     fsdp_fully_sharded_data_parallel(model, group, device, &options);   each block is a unit
 *     fsdp_pretrained_load(&weights, model, group, seed, NULL);          each rank reads its rows
 *     fsdp_adamw_create(model, &adamw, &optimizer);
 *     for each batch of a loader (fsdp_dataset_open, fsdp_loader_create, fsdp_loader_next):
 *         fsdp_forward_backward(model, device, batch, &training, &loss);
 *         fsdp_clip_grad_norm(&parameters, 1.0, NULL, &norm, &scale);
 *         fsdp_optimizer_step(optimizer, scale);
 *         fsdp_optimizer_zero_grad(optimizer);
 *     fsdp_module_save(model, "output", group, NULL);                    safetensors
 *
 *   examples/train_t5.c is a complete program of this kind. examples/fsdp2_train.c defines its own
 *   model.
 *
 * The headers, from simple to advanced
 *
 *   Training a model of the library
 *     <fsdp/base.h>        status, messages, dtypes
 *     <fsdp/comm.h>        process groups, collectives
 *     <fsdp/pretrained.h>  models by name: open, load, save
 *     <fsdp/models.h>      functions that work for any model
 *     <fsdp/t5.h>, <fsdp/llama.h>, <fsdp/gpt2.h>, <fsdp/bert.h>   the individual models
 *     <fsdp/float8.h>      products of 8-bit floats, as in torchao
 *     <fsdp/lora.h>        LoRA adapters, as in PEFT
 *     <fsdp/fsdp.h>        fully_shard, FullyShardedDataParallel and their options
 *     <fsdp/text.h>        tokenizers
 *     <fsdp/chat.h>        chat templates
 *     <fsdp/data.h>        datasets, samplers, loaders
 *     <fsdp/batch.h>       the batches that loaders return
 *     <fsdp/optim.h>       optimizers, schedules, clipping, the gradient scaler
 *     <fsdp/train.h>       helpers for scripts: arguments, device, forward and backward
 *     <fsdp/progress.h>    progress bars
 *     <fsdp/accelerator.h> Accelerate's Accelerator: prepare, accumulate, gather_for_metrics, ...
 *   Saving and resuming
 *     <fsdp/state_dict.h>  state dicts, DCP directories, files written by torch.save()
 *     <fsdp/accelerate.h>  folders written by Accelerate's save_state()
 *     <fsdp/hf.h>          files of weights, without the library's tensors
 *     <fsdp/checkpoint_entry.h>   one tensor in a file of weights
 *   Writing a model
 *     <fsdp/tensor.h>      devices and tensors
 *     <fsdp/nn.h>          modules, parameters, initialization
 *     <fsdp/autograd.h>    scopes, the tape, operations with gradients, activation checkpointing
 *     <fsdp/hidden_act.h>  activation functions and their names in transformers
 *   Advanced
 *     <fsdp/dtensor.h>     device meshes and placements
 *     <fsdp/profile.h>     where the time of a step goes
 *     <fsdp/options.h>     one table of options for flags, YAML and help
 *   Experimental: may change in any version
 *     in <fsdp/fsdp.h>: all-gather extensions, shard_placement_fn, fsdp_wrap_policy.joint_modules
 */
#pragma once
#include <fsdp/accelerate.h>
#include <fsdp/accelerator.h>
#include <fsdp/autograd.h>
#include <fsdp/base.h>
#include <fsdp/batch.h>
#include <fsdp/bert.h>
#include <fsdp/chat.h>
#include <fsdp/checkpoint_entry.h>
#include <fsdp/ckpt.h>
#include <fsdp/comm.h>
#include <fsdp/data.h>
#include <fsdp/dtensor.h>
#include <fsdp/float8.h>
#include <fsdp/fsdp.h>
#include <fsdp/gpt2.h>
#include <fsdp/hf.h>
#include <fsdp/hidden_act.h>
#include <fsdp/llama.h>
#include <fsdp/lora.h>
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
