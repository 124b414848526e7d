/* Resumes from a checkpoint that another program saved. The model and the optimizer are found by
 * the keys of the checkpoint (foreign_names.h). The weights and the optimizer's state are read into
 * the model and the optimizer of this run. The options in the checkpoint's param_groups are only
 * reported, so that the caller can compare them with the options of this run. */
#pragma once
#include <fsdp/state_dict.h>

#include "src/optim/optimizer.h"

/* Each path is a directory of torch.distributed.checkpoint or a torch.save file. `model` may also
 * be a safetensors file or the folder of a Hugging Face model. */
typedef struct fsdp_foreign_paths {
    const char *model;
    const char *optimizer; /* equal to `model` if one checkpoint contains both */
} fsdp_foreign_paths;

/* Options of one trained parameter, in this run and in the checkpoint. */
typedef struct fsdp_foreign_parameter {
    const char *name;              /* name in the module */
    fsdp_optimizer_options ours;   /* options of the parameter's group in this run */
    fsdp_optimizer_options theirs; /* options of the parameter's group in the checkpoint; an option
                                      that the checkpoint lacks has the value in `ours`; lr is the
                                      checkpoint's initial_lr if there is one */
} fsdp_foreign_parameter;

typedef struct fsdp_foreign_report {
    fsdp_foreign_parameter *parameters; /* [n] in the optimizer's order */
    size_t n;
    char **notes; /* [n_notes] sentences about parts of the checkpoint that are not used */
    size_t n_notes, cap_notes;
    fsdp_parameter_list names; /* owns the names in `parameters` */
} fsdp_foreign_report;

/* Read the model and the optimizer's state. The optimizer's options are not changed. Collective:
 * all ranks find and check everything before any value changes. If one rank fails, all ranks fail.
 *
 * @param report out: set if FSDP_OK is returned; free it with fsdp_foreign_report_free()
 * @return FSDP_ERR_NOT_FOUND if a tensor or a state is missing; the message says which keys exist
 *         and which are needed. FSDP_ERR_INVALID if the checkpoint has state or options that this
 *         optimizer does not have, such as amsgrad, or momentum_buffer in AdamW. Also
 *         FSDP_ERR_INVALID if tensors that are tied in this model differ, or if one name matches
 *         two items. Otherwise the errors of fsdp_source_open(), fsdp_dcp_load() and
 *         fsdp_torch_load_into() */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_load(fsdp_module *module, fsdp_optimizer *optimizer,
                                              const fsdp_foreign_paths *paths, fsdp_group *group,
                                              fsdp_foreign_report *report);
void fsdp_foreign_report_free(fsdp_foreign_report *report); /* accepts a zeroed report */
