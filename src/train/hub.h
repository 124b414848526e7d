/* Where a model's folder is: a path, or a name of the Hugging Face hub looked up in the local cache
 * that `huggingface-cli download` and transformers fill. Nothing is downloaded. */
#pragma once
#include <fsdp/base.h>

/* The folder of `name`: `name` itself if it is a directory; else, for "t5-base" or "org/name", the
 * snapshot of its main branch in $HF_HUB_CACHE, $HF_HOME/hub or ~/.cache/huggingface/hub. *dir is
 * the caller's (fsdp_free). FSDP_ERR_NOT_FOUND names every folder searched. */
FSDP_MUST_CHECK fsdp_status fsdp_hub_resolve(const char *name, char **dir);
