/* Finds the files that a path refers to: a single file, the files that match a pattern, or the
 * files of a folder. */
#pragma once
#include <stddef.h>

#include <fsdp/base.h>

typedef struct fsdp_path_list {
    char **items; /* [len], each owned */
    size_t len, cap;
} fsdp_path_list;

/* List the token files that `path` refers to. `path` is a file, a folder or a pattern
 * (fsdp_dataset_open()). If `path` is a folder, `validation` chooses: true lists the folder's files
 * for validation, and false those for training (fsdp_split_kind_of()). If the name of the folder is
 * a fsdp_validation_name(), all of its files are for validation, as in Hugging Face's datasets. If
 * a folder has no file for validation, its files with the word "eval" are for validation
 * (fsdp_split_is_evaluation()). The list has at least one path, and its paths are sorted by
 * strcmp(). Returns FSDP_ERR_NOT_FOUND if a folder or pattern has no such file. */
FSDP_MUST_CHECK fsdp_status fsdp_token_paths(const char *path, bool validation,
                                             fsdp_path_list *list);
/* Like fsdp_token_paths(), for files of texts. If a folder has a file of WikiHow, only this file is
 * listed. Otherwise, all files of a folder must be of one kind (JSON, CSV or plain text, by their
 * endings); if they are not, return FSDP_ERR_INVALID. */
FSDP_MUST_CHECK fsdp_status fsdp_text_paths(const char *path, bool validation,
                                            fsdp_path_list *list);
void fsdp_path_list_fini(fsdp_path_list *list);
/* `path` is a file of texts in `folder`. Return true if the folder has another file of texts with a
 * name for the same split (fsdp_split_is_named()), such as train_part2.jsonl next to
 * train.jsonl. */
bool fsdp_split_has_another_file(const char *folder, const char *path, bool validation);

/* If `path` contains no folder "train", set *out to a copy of `path`. Otherwise set *out to the
 * folder of a split: for training, to the folder "train"; for validation, to the first folder in
 * `path` that has one of the names fsdp_validation_name(), in the order of these names. Returns
 * FSDP_ERR_NOT_FOUND if there is no such folder for validation. The caller owns *out. */
FSDP_MUST_CHECK fsdp_status fsdp_split_folder(const char *path, bool validation, char **out);
/* Return true if the name of a file says that it is plain text: .txt, .text, .raw, .md, .tokens. */
bool fsdp_is_plain_text_name(const char *path);
/* Set *is to true if `path` is a token file, a pattern that matches token files, or a folder that
 * contains token files. Otherwise set it to false. */
FSDP_MUST_CHECK fsdp_status fsdp_is_token_path(const char *path, bool *is);
