/* What the files that implement foreign.h share. */
#pragma once
#include "src/torchfile/pickle_reader.h"
#include "src/foreign/foreign.h"
#include "src/foreign/foreign_names.h"
#include "src/state_dict/state_dict.h"

/* A trained parameter. */
typedef struct fsdp_foreign_slot {
    fsdp_parameter *parameter;
    const char *name; /* its first name in the module */
    const char *key; /* under "state." of the checkpoint: "module.lm_head.weight", "3"; NULL: it has
                        no state */
    const char *group_key; /* under "param_groups.": "0", or a parameter's name; NULL: unknown */
} fsdp_foreign_slot;

typedef struct fsdp_foreign_run {
    fsdp_module *module;
    fsdp_optimizer *optimizer;
    const fsdp_foreign_paths *paths;
    fsdp_group *group;
    fsdp_foreign_report *report;
    fsdp_foreign_names model, own_optim; /* own_optim is empty if one source has both */
    fsdp_foreign_names *optim;           /* the optimizer's source: &model or &own_optim */
    fsdp_parameter_list all, once;       /* each name of each parameter; each parameter once */
    char *prefix;                        /* prefix of the model's keys */
    fsdp_foreign_optimizer at;           /* place of the optimizer in its source */
    fsdp_foreign_slot *slots;            /* [n_slots] in the optimizer's order */
    size_t n_slots;
    fsdp_arena arena; /* texts and plain values */
    /* What is read from the model's source and from the optimizer's source: tensors under the
     * checkpoint's keys. Both point to the same dict if one source has both. */
    fsdp_state_dict *reads[2];
    fsdp_state_dict *state; /* {"state"} for fsdp_set_optimizer_state_dict() */
} fsdp_foreign_run;

/* Formatted text in the run's arena; NULL if memory ran out. */
FSDP_PRINTF(2, 3) const char *fsdp_foreign_text(fsdp_foreign_run *run, const char *format, ...);
/* Add a sentence to the report. */
FSDP_PRINTF(2, 3)
FSDP_MUST_CHECK fsdp_status fsdp_foreign_note(fsdp_foreign_run *run, const char *format, ...);
/* Read a plain value, or a tensor of one number, from the optimizer's source into the run's arena;
 * *known is false if it is neither. */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_value(fsdp_foreign_run *run, const fsdp_source_item *item,
                                               fsdp_plain *value, bool *known);
/* Fill in key and group_key of every slot. */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_find_slots(fsdp_foreign_run *run);
/* Add the options that param_groups has for every slot to the report. */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_read_groups(fsdp_foreign_run *run);
