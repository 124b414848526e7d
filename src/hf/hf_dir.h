/* Hugging Face model directories: where they are, and the files beside the weights. */
#pragma once
#include <fsdp/base.h>

/* The directory that a model argument means: an existing directory, or a hub name ("t5-base",
 * "org/name") that lies in the local Hugging Face cache. The cache folders are searched in the
 * order of huggingface_hub: $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub,
 * $XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub; in each, the snapshot that refs/main
 * names, or the only one. Nothing is downloaded.
 * *dir is the caller's, ended by fsdp_free(). FSDP_ERR_NOT_FOUND names the folders searched. */
FSDP_MUST_CHECK fsdp_status fsdp_hf_dir_resolve(const char *model, char **dir);

/* Copy a tokenizer's files into the folder `to`: those that the folder `from` has (spiece.model,
 * tokenizer.json, tokenizer_config.json, ...; links, as in the cache, are followed), or `from`
 * itself if it is a file: under its own name and with the others beside it if that is one of a
 * tokenizer's, else as `file_name`, with the tokenizer_config.json beside it, which is read with
 * it.
 */
FSDP_MUST_CHECK fsdp_status fsdp_hf_dir_copy_tokenizer(const char *from, const char *to,
                                                       const char *file_name);
/* One of the names that are copied. */
bool fsdp_hf_dir_is_tokenizer_file(const char *name);

/* Copy config.json and generation_config.json, if the folder `from` has them, into the folder `to`.
 * `dtype`: torch's name of what the weights are now, which config.json then says; NULL: as it was.
 */
FSDP_MUST_CHECK fsdp_status fsdp_hf_dir_copy_config(const char *from, const char *to,
                                                    const char *dtype);
