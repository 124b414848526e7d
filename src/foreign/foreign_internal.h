/* What the files of foreign.h share. */
#pragma once
#include "src/torchfile/pickle_reader.h"
#include "src/foreign/foreign.h"
#include "src/foreign/foreign_names.h"
#include "src/state_dict/state_dict.h"

/* A parameter that is trained. */
typedef struct fsdp_foreign_slot {
    fsdp_parameter *parameter;
    const char *name;      /* its first one in the module */
    const char *key;       /* under "state." of the checkpoint: "module.lm_head.weight", "3"; NULL:
                              there is no state of it */
    const char *group_key; /* under "param_groups.": "0", or a parameter's name; NULL: unknown */
} fsdp_foreign_slot;

typedef struct fsdp_foreign_run {
    fsdp_module *module;
    fsdp_optimizer *optimizer;
    const fsdp_foreign_paths *paths;
    fsdp_group *group;
    fsdp_foreign_report *report;
    fsdp_foreign_names model, own_optim; /* own_optim is empty if one source holds both */
    fsdp_foreign_names *optim;           /* the source of the optimizer: one of these */
    fsdp_parameter_list all, once;       /* each name of each parameter; each parameter once */
    char *prefix;                        /* of the model */
    fsdp_foreign_optimizer at;           /* where the optimizer is */
    fsdp_foreign_slot *slots;            /* [n_slots] in the optimizer's order */
    size_t n_slots;
    fsdp_arena arena;          /* texts and plain values */
    fsdp_state_dict *reads[2]; /* model's, optimizer's: tensors under the checkpoint's keys;
                                  the same one if one source holds both */
    fsdp_state_dict *state;    /* {"state"} for fsdp_set_optimizer_state_dict() */
} fsdp_foreign_run;

/* Text in the run's arena; NULL if memory ran out. */
FSDP_PRINTF(2, 3) const char *fsdp_foreign_text(fsdp_foreign_run *run, const char *format, ...);
/* Add a sentence to the report. */
FSDP_PRINTF(2, 3)
FSDP_MUST_CHECK fsdp_status fsdp_foreign_note(fsdp_foreign_run *run, const char *format, ...);
/* A plain value of the optimizer's source, in the run's arena, also of a tensor of one number;
 * *known is false if it is not plain. */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_value(fsdp_foreign_run *run, const fsdp_source_item *item,
                                               fsdp_plain *value, bool *known);
/* Fill in key and group_key of every slot. */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_find_slots(fsdp_foreign_run *run);
/* What param_groups says of every slot, into the report. */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_read_groups(fsdp_foreign_run *run);
