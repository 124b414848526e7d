/* Files of safetensors that hold one rank's parts of tensors: HuggingFaceStorageWriter of
 * torch.distributed.checkpoint writes them, and consolidate_safetensors_files() joins them. */
#pragma once
#include <fsdp/hf.h>

#include "src/base/json.h"

#define FSDP_SHARD_PREFIX "shard-"

/* "shard-00001-model-00001-of-00001.safetensors" */
bool fsdp_shard_is_name(const char *name);
/* Are there such files in the folder? */
bool fsdp_shard_is_folder(const char *dir);
/* What the header of `file` says of the parts in it, the caller's; NULL if it says nothing. */
FSDP_MUST_CHECK fsdp_status fsdp_shard_read_info(const fsdp_safetensors *file, const char *path,
                                                 fsdp_json **info);
/* FSDP_ERR_UNSUPPORTED if `file` is one rank's part of a model, and not all of one. */
FSDP_MUST_CHECK fsdp_status fsdp_shard_refuse(const fsdp_safetensors *file, const char *path);
/* FSDP_ERR_INVALID for a folder of them that is given as a model's. */
FSDP_MUST_CHECK fsdp_status fsdp_shard_refuse_folder(const char *dir);
