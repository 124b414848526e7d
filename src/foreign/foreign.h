/* Resuming from checkpoints that another program saved: its keys are found (foreign_names.h), its
 * optimizer state is read into this run's optimizer, and the options in its param_groups are
 * reported, so that the caller can compare them with the options of this run, which are the ones
 * used. */
#pragma once
#include <fsdp/state_dict.h>

#include "src/optim/optimizer.h"

/* Each is a directory of torch.distributed.checkpoint or a file of torch.save; the model may also
 * be safetensors or the folder of a Hugging Face model. */
typedef struct fsdp_foreign_paths {
    const char *model;
    const char *optimizer; /* the same path if one holds both */
} fsdp_foreign_paths;

/* Options of one trained parameter. */
typedef struct fsdp_foreign_parameter {
    const char *name;              /* name in the module */
    fsdp_optimizer_options ours;   /* options of its group in this run */
    fsdp_optimizer_options theirs; /* the same, replaced by the checkpoint's options; lr is the
                                      initial_lr of a scheduler if there is one */
} fsdp_foreign_parameter;

typedef struct fsdp_foreign_report {
    fsdp_foreign_parameter *parameters; /* [n] in the optimizer's order */
    size_t n;
    char **notes; /* [n_notes] sentences about parts of the checkpoint that are not used */
    size_t n_notes, cap_notes;
    fsdp_parameter_list names; /* owns the names */
} fsdp_foreign_report;

/* Read model and optimizer state; the optimizer's options are not changed. Collective: everything
 * is found and checked on all ranks before the first value changes; if one rank fails, all do.
 *
 * @param report out, with FSDP_OK: freed with fsdp_foreign_report_free()
 * @return FSDP_ERR_NOT_FOUND saying which keys exist and which are needed; FSDP_ERR_INVALID for
 *         state or options that this optimizer does not have (amsgrad, momentum_buffer in AdamW),
 *         for tensors that are tied in this model but differ, or names that fit twice; and as
 *         fsdp_source_open(), fsdp_dcp_load() and fsdp_torch_load_into() */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_load(fsdp_module *module, fsdp_optimizer *optimizer,
                                              const fsdp_foreign_paths *paths, fsdp_group *group,
                                              fsdp_foreign_report *report);
void fsdp_foreign_report_free(fsdp_foreign_report *report); /* accepts all zero */
