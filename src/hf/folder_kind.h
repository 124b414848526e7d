/* What a folder is that is not the folder of a model: for error messages. */
#pragma once
#include <fsdp/base.h>

/* Called for a folder that lacks config.json or weights. FSDP_ERR_INVALID saying what it is, and
 * the command that makes a model's folder of it; FSDP_OK if it is not known, or a model's. */
FSDP_MUST_CHECK fsdp_status fsdp_folder_explain(const char *dir);
/* The same only of folders that no reader here reads, not in part: adapters of PEFT, weights of
 * other frameworks. */
FSDP_MUST_CHECK fsdp_status fsdp_folder_explain_foreign(const char *dir);
/* The model that the run of `fsdp train` began with that wrote the folder or file `path`, as its
 * trainer_state.json has it; *model is the caller's, NULL if there is none. */
FSDP_MUST_CHECK fsdp_status fsdp_folder_model_of_run(const char *path, char **model);
