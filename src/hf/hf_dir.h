/* Finds Hugging Face model directories, and copies the configuration and the tokenizer from
 * them. */
#pragma once
#include <fsdp/base.h>

/* Find the directory of a model. `model` is an existing directory, or a hub name ("t5-base",
 * "org/name") of a model in the local Hugging Face cache. The cache folders are searched in the
 * order of huggingface_hub: $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub,
 * $XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub. If a model has several snapshots,
 * refs/main must name one of them. Nothing is downloaded. The caller frees *dir with fsdp_free().
 * If no folder has the model, the message of FSDP_ERR_NOT_FOUND lists the folders that were
 * searched. */
FSDP_MUST_CHECK fsdp_status fsdp_hf_dir_resolve(const char *model, char **dir);

/* Copy a tokenizer's files (spiece.model, tokenizer.json, tokenizer_config.json, ...) into the
 * folder `to`. The cache of huggingface_hub contains links, so links are followed. `from` is one of
 * these:
 * - a folder: all tokenizer files in it are copied;
 * - a file that has the name of a tokenizer file: it is copied, and so are the other tokenizer
 *   files in its folder, except SentencePiece models;
 * - any other file: it is copied under the name `file_name`, and tokenizer_config.json and
 *   added_tokens.json from its folder are copied, too. */
FSDP_MUST_CHECK fsdp_status fsdp_hf_dir_copy_tokenizer(const char *from, const char *to,
                                                       const char *file_name);
/* Return true if `name` is the name of a tokenizer file, such as tokenizer.json. */
bool fsdp_hf_dir_is_tokenizer_file(const char *name);

/* Copy config.json and generation_config.json from the folder `from` to the folder `to`. A file
 * that `from` does not have is skipped. Then write `dtype`, which is torch's name of a dtype, to
 * the copy of config.json. If `dtype` is NULL, the copy is not changed. */
FSDP_MUST_CHECK fsdp_status fsdp_hf_dir_copy_config(const char *from, const char *to,
                                                    const char *dtype);
