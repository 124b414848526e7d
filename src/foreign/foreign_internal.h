/* Shared by the files that implement foreign.h. */
#pragma once
#include "src/foreign/foreign.h"
#include "src/foreign/foreign_names.h"
#include "src/state_dict/state_dict.h"
#include "src/torchfile/pickle_reader.h"

/* A trained parameter. */
typedef struct fsdp_foreign_slot {
    fsdp_parameter *parameter;
    const char *name;      /* first name of the parameter in the module */
    const char *key;       /* key of the parameter's state below "state." in the checkpoint, such as
                              "module.lm_head.weight" or "3"; NULL if there is no state */
    const char *group_key; /* key of the parameter's options below "param_groups.": a group such as
                              "0", or a parameter's name; NULL if unknown */
} fsdp_foreign_slot;

typedef struct fsdp_foreign_run {
    fsdp_module *module;
    fsdp_optimizer *optimizer;
    const fsdp_foreign_paths *paths;
    fsdp_group *group;
    fsdp_foreign_report *report;
    fsdp_foreign_names model, own_optim; /* own_optim is unused if optim is &model */
    fsdp_foreign_names *optim;           /* the optimizer's source: &model or &own_optim */
    fsdp_parameter_list all, once; /* all: every name of each parameter; once: only one name */
    char *prefix;                  /* prefix of the model's keys */
    fsdp_foreign_optimizer at;     /* place of the optimizer in its source */
    fsdp_foreign_slot *slots;      /* [n_slots] in the optimizer's order */
    size_t n_slots;
    fsdp_arena arena; /* strings and plain values */
    /* The tensors that will be read, under the checkpoint's keys: those in reads[0] from the
     * model's source, those in reads[1] from the optimizer's source. If both are one source,
     * reads[1] equals reads[0]. */
    fsdp_state_dict *reads[2];
    fsdp_state_dict *state; /* the dict {"state": ...} for fsdp_set_optimizer_state_dict() */
} fsdp_foreign_run;

/* Return a formatted string, which the run's arena owns; NULL if memory ran out. */
FSDP_PRINTF(2, 3) const char *fsdp_foreign_text(fsdp_foreign_run *run, const char *format, ...);
/* Add a sentence to the notes of the report. */
FSDP_PRINTF(2, 3)
FSDP_MUST_CHECK fsdp_status fsdp_foreign_note(fsdp_foreign_run *run, const char *format, ...);
/* Read a plain value, or a tensor with one element, from the optimizer's source into the run's
 * arena. *known is false if the item has another type. */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_value(fsdp_foreign_run *run, const fsdp_source_item *item,
                                               fsdp_plain *value, bool *known);
/* Fill in key and group_key of every slot. */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_find_slots(fsdp_foreign_run *run);
/* Report the options that the checkpoint has in param_groups for each slot. */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_read_groups(fsdp_foreign_run *run);
