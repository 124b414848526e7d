/* The files of an adapter's folder, for programs that read them without a model in memory. */
#pragma once
#include <fsdp/pretrained.h>

/* What PEFT puts before the names of the model's parameters in the files of an adapter. */
#define FSDP_LORA_NAME_PREFIX "base_model.model."

/* Open the tensors of the adapter in the folder `dir`. Their names are those of the model's
 * parameters, without the prefix that PEFT puts before them. The caller owns *reader. */
FSDP_MUST_CHECK fsdp_status fsdp_lora_open_values(const char *dir, fsdp_checkpoint_reader **reader);
/* Return true if the folder `dir` has a file with the values of an adapter. */
bool fsdp_lora_has_values(const char *dir);
/* If the adapter in the folder `dir` has a classifier, set the number of classes in *config to the
 * number that this classifier has. */
FSDP_MUST_CHECK fsdp_status fsdp_lora_fit_head(const char *dir, fsdp_model_config *config);
/* Set *name to the base model that adapter_config.json (`file`) names for the adapter in the folder
 * `dir`. As in peft, a relative path is relative to the current folder. But if it exists only
 * relative to `dir`, *name is set to `dir` joined with the path. The caller owns *name. Return
 * FSDP_ERR_INVALID if the file names no model. */
FSDP_MUST_CHECK fsdp_status fsdp_lora_find_base(const fsdp_lora_file *file, const char *dir,
                                                char **name);
/* Return PEFT's task_type for a model; NULL if PEFT has none for its task. */
const char *fsdp_lora_task_type(const fsdp_model_info *info);
