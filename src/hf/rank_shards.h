/* Safetensors files that hold one rank's parts of tensors. HuggingFaceStorageWriter of
 * torch.distributed.checkpoint writes them, and consolidate_safetensors_files() joins them. */
#pragma once
#include <fsdp/hf.h>

#include "src/base/json.h"

#define FSDP_SHARD_PREFIX "shard-"

/* Does `name` have the form "shard-00001-model-00001-of-00001.safetensors"? */
bool fsdp_shard_is_name(const char *name);
/* Does the folder contain files whose names have the form of fsdp_shard_is_name()? */
bool fsdp_shard_is_folder(const char *dir);
/* Read the description of the parts from the header of `file`. The caller owns *info, which is NULL
 * if the header has no description. */
FSDP_MUST_CHECK fsdp_status fsdp_shard_read_info(const fsdp_safetensors *file, const char *path,
                                                 fsdp_json **info);
/* FSDP_ERR_UNSUPPORTED if `file` is only one rank's part of a model. */
FSDP_MUST_CHECK fsdp_status fsdp_shard_refuse(const fsdp_safetensors *file, const char *path);
/* FSDP_ERR_INVALID if `dir`, which was given as a model's folder, contains ranks' parts of
 * tensors. */
FSDP_MUST_CHECK fsdp_status fsdp_shard_refuse_folder(const char *dir);
