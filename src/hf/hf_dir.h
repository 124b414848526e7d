/* Hugging Face model directories: finding them, and the files that are next to the weights. */
#pragma once
#include <fsdp/base.h>

/* Get the directory that a model argument means: an existing directory, or a hub name ("t5-base",
 * "org/name") that is in the local Hugging Face cache. The cache folders are searched in the order
 * of huggingface_hub: $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub,
 * $XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub; in each, the snapshot that refs/main
 * names, or the only one. Nothing is downloaded. The caller frees *dir with fsdp_free().
 * FSDP_ERR_NOT_FOUND names the folders that were searched. */
FSDP_MUST_CHECK fsdp_status fsdp_hf_dir_resolve(const char *model, char **dir);

/* Copy a tokenizer's files (spiece.model, tokenizer.json, tokenizer_config.json, ...) into the
 * folder `to`, following links, as in the cache. If `from` is a folder, all of them are copied. If
 * it is a file with a tokenizer's file name, it and the others in its folder are copied. Any other
 * file is copied as `file_name`, together with the tokenizer_config.json in its folder. */
FSDP_MUST_CHECK fsdp_status fsdp_hf_dir_copy_tokenizer(const char *from, const char *to,
                                                       const char *file_name);
/* Is `name` one of the files that are copied? */
bool fsdp_hf_dir_is_tokenizer_file(const char *name);

/* Copy config.json and generation_config.json, if the folder `from` has them, into the folder `to`.
 * `dtype`: torch's name of the new dtype of the weights, which is written to config.json; NULL:
 * leave it. */
FSDP_MUST_CHECK fsdp_status fsdp_hf_dir_copy_config(const char *from, const char *to,
                                                    const char *dtype);
