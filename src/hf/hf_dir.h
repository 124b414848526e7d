/* Finds Hugging Face model directories, and copies the files that are next to the weights. */
#pragma once
#include <fsdp/base.h>

/* Get the directory that a model argument means: an existing directory, or a hub name ("t5-base",
 * "org/name") that is in the local Hugging Face cache. The cache folders are searched in the order
 * of huggingface_hub: $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub,
 * $XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub. If a model has several snapshots,
 * refs/main must name one of them. Nothing is downloaded. The caller frees *dir with fsdp_free().
 * FSDP_ERR_NOT_FOUND names the folders that were searched. */
FSDP_MUST_CHECK fsdp_status fsdp_hf_dir_resolve(const char *model, char **dir);

/* Copy a tokenizer's files (spiece.model, tokenizer.json, tokenizer_config.json, ...) into the
 * folder `to`. Links, as in the cache, are followed. If `from` is a folder, all tokenizer files in
 * it are copied. If `from` is a file with the name of a tokenizer file, it is copied, together with
 * the tokenizer files in its folder except SentencePiece models. Any other file is copied as
 * `file_name`, together with tokenizer_config.json and added_tokens.json from its folder. */
FSDP_MUST_CHECK fsdp_status fsdp_hf_dir_copy_tokenizer(const char *from, const char *to,
                                                       const char *file_name);
/* Is `name` a tokenizer file that fsdp_hf_dir_copy_tokenizer() copies? */
bool fsdp_hf_dir_is_tokenizer_file(const char *name);

/* Copy config.json and generation_config.json, if the folder `from` has them, into the folder `to`.
 * `dtype` is torch's name of the new dtype of the weights, which is written to config.json. If
 * `dtype` is NULL, config.json does not change. */
FSDP_MUST_CHECK fsdp_status fsdp_hf_dir_copy_config(const char *from, const char *to,
                                                    const char *dtype);
