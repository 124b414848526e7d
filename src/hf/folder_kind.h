/* Recognizes folders that a user gave as a model's folder, but that are something else, such as a
 * checkpoint or an adapter. The functions return errors that say what the folder is. */
#pragma once
#include <fsdp/base.h>

/* The names that a model's file of weights may have, in the order in which transformers looks for
 * them. Such a file either contains all weights, or is an index of several files with weights.
 * NULL-terminated. */
extern const char *const fsdp_folder_weights[];
/* Return true if the folder contains one of fsdp_folder_weights. */
bool fsdp_folder_has_weights(const char *dir);
/* Return an error that explains why a folder is not the folder of a model. Call this only if
 * config.json or the weights are missing.
 *
 * @return FSDP_ERR_INVALID if the folder is recognized as something else. The message says what it
 * is and how to make a model's folder from it. FSDP_ERR_NOT_FOUND if only the index of the weights
 * is missing. FSDP_OK if there is no explanation, because the folder is not recognized. */
FSDP_MUST_CHECK fsdp_status fsdp_folder_explain(const char *dir);
/* Like fsdp_folder_explain(), but only for folders that no reader of this library can read, not
 * even in part: an adapter of PEFT, a checkpoint of DeepSpeed, or weights of another framework. For
 * all other folders, return FSDP_OK. */
FSDP_MUST_CHECK fsdp_status fsdp_folder_explain_foreign(const char *dir);
/* Find the model with which a run of `fsdp train` was started. `path` is a checkpoint of the run,
 * or a file or folder in that checkpoint. Set *model to the model that the checkpoint's
 * trainer_state.json names, or to NULL if this file does not exist or names no model. The caller
 * frees *model. */
FSDP_MUST_CHECK fsdp_status fsdp_folder_model_of_run(const char *path, char **model);
