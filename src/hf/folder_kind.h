/* Recognizes folders that are something other than a model's folder, for error messages. */
#pragma once
#include <fsdp/base.h>

/* Possible names of the file with which reading a model's weights begins: a single file of weights,
 * or the index of several. They are in the order in which transformers tries them.
 * NULL-terminated. */
extern const char *const fsdp_folder_weights[];
/* Does the folder contain one of fsdp_folder_weights? */
bool fsdp_folder_has_weights(const char *dir);
/* Report what a folder is, if it lacks config.json or weights. FSDP_ERR_INVALID saying what the
 * folder is, and which command makes a model's folder from it; FSDP_ERR_NOT_FOUND if only the index
 * of its weights is missing; FSDP_OK if the kind of the folder is unknown, or if it is a model's
 * folder. */
FSDP_MUST_CHECK fsdp_status fsdp_folder_explain(const char *dir);
/* Report what a folder is, as fsdp_folder_explain() does, but only if no reader of this library can
 * read even a part of it: a PEFT adapter, a checkpoint of DeepSpeed, or weights of another
 * framework. */
FSDP_MUST_CHECK fsdp_status fsdp_folder_explain_foreign(const char *dir);
/* `path` is a folder or file that a run of `fsdp train` wrote. Get the model with which the run was
 * started, from its trainer_state.json. The caller frees *model, which is NULL if there is none. */
FSDP_MUST_CHECK fsdp_status fsdp_folder_model_of_run(const char *path, char **model);
