/* Recognizes safetensors files that contain only one rank's parts of tensors. PyTorch's
 * HuggingFaceStorageWriter (torch.distributed.checkpoint) writes these files, and PyTorch's
 * consolidate_safetensors_files() joins them. */
#pragma once
#include <fsdp/hf.h>

#include "src/base/json.h"

#define FSDP_SHARD_PREFIX "shard-"

/* Return true if `name` has the form "shard-00001-model-00001-of-00001.safetensors". */
bool fsdp_shard_is_name(const char *name);
/* Return true if fsdp_shard_is_name() is true for the name of at least one file in the folder
 * `dir`. */
bool fsdp_shard_is_folder(const char *dir);
/* Parse DCP_SHARDING_INFO in the header of `file`. This key says where each part begins in its
 * tensor. The caller owns *info, which is NULL if the header does not have this key. */
FSDP_MUST_CHECK fsdp_status fsdp_shard_read_info(const fsdp_safetensors *file, const char *path,
                                                 fsdp_json **info);
/* Return FSDP_ERR_UNSUPPORTED if `file` contains only one rank's part of a model. */
FSDP_MUST_CHECK fsdp_status fsdp_shard_refuse(const fsdp_safetensors *file, const char *path);
/* The user gave `dir` as a model's folder. Return FSDP_ERR_INVALID if it contains files that hold
 * only one rank's parts of tensors. The message says how to make a model's folder from `dir`. */
FSDP_MUST_CHECK fsdp_status fsdp_shard_refuse_folder(const char *dir);
