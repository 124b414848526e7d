/* Declarations that are shared by the files that implement foreign.h. */
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
    const char *group_key; /* key of the parameter's options below "param_groups.": the number of a
                              group, such as "0", or the name of a parameter; NULL if unknown */
} fsdp_foreign_slot;

/* Scales of a state in 8 bits that are read as bitsandbytes saved them: foreign_blocks.c. */
typedef struct fsdp_foreign_blocks {
    fsdp_tensor *flat; /* [blocks of the flat parameter], as in the checkpoint; owned */
    fsdp_tensor *rows; /* [rows, blocks of a row], as the optimizer has them; owned */
    int64_t inner;     /* elements of a row */
} fsdp_foreign_blocks;

typedef struct fsdp_foreign_run {
    fsdp_module *module;
    fsdp_optimizer *optimizer;
    const fsdp_foreign_paths *paths;
    fsdp_group *group;
    fsdp_foreign_report *report;
    /* model: the items of the model's source. own_optim: the items of the optimizer's source, if
     * the optimizer has a source of its own. */
    fsdp_foreign_names model, own_optim;
    fsdp_foreign_names *optim; /* the items of the optimizer's source: &model or &own_optim */
    /* `all` has every name of every parameter. `once` has one name of each parameter; borrowed from
     * the report. */
    fsdp_parameter_list all, once;
    char *prefix;              /* prefix of the model's keys in the checkpoint */
    fsdp_foreign_optimizer at; /* where the optimizer's state is among the items of `optim` */
    fsdp_foreign_slot *slots;  /* [n_slots] trained parameters in the optimizer's order */
    size_t n_slots;
    fsdp_arena arena; /* strings and plain values */
    /* State dicts with the tensors to read, under the keys that these tensors have in the
     * checkpoint. reads[0] is read from the model's source, and reads[1] from the optimizer's
     * source. If one source contains both, reads[0] and reads[1] are the same dict. */
    fsdp_state_dict *reads[2];
    fsdp_foreign_blocks *blocks; /* [n_blocks] */
    size_t n_blocks, cap_blocks;
    fsdp_state_dict *state; /* the dict {"state": ...} for fsdp_set_optimizer_state_dict() */
} fsdp_foreign_run;

/* Return a formatted string, which the run's arena owns; NULL if memory ran out. */
FSDP_PRINTF(2, 3) const char *fsdp_foreign_text(fsdp_foreign_run *run, const char *format, ...);
/* Add a sentence to the notes of the report. */
FSDP_PRINTF(2, 3)
FSDP_MUST_CHECK fsdp_status fsdp_foreign_note(fsdp_foreign_run *run, const char *format, ...);
/* Read the value of `item`, which is in the optimizer's source. If the value is neither plain nor a
 * tensor with one element, set *known to false. The run's arena owns the memory. */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_value(fsdp_foreign_run *run, const fsdp_source_item *item,
                                               fsdp_plain *value, bool *known);
/* The key below which state_dict() of a bitsandbytes optimizer has all states except "step". */
#define FSDP_FOREIGN_BNB_STATE "__bnb_optimizer_quant_state__"
/* Return `key`, the key of a state below "state.<parameter>.", without FSDP_FOREIGN_BNB_STATE. */
const char *fsdp_foreign_state_key(const char *key);
/* Return true if `item` has one scale for each block of the flat parameter, and `state` has one for
 * each block of each row (foreign_blocks.c). */
bool fsdp_foreign_is_flat(const fsdp_parameter *p, const fsdp_tensor *state,
                          const fsdp_source_item *item);
/* Create the tensors into which the flat scales `item` are read and converted. *out is valid until
 * the next call. */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_add_blocks(fsdp_foreign_run *run,
                                                    const fsdp_foreign_slot *slot, const char *key,
                                                    const fsdp_source_item *item,
                                                    fsdp_foreign_blocks **out);
/* Convert the flat scales of all states. The caller has read them. */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_fill_blocks(const fsdp_foreign_run *run);
void fsdp_foreign_free_blocks(fsdp_foreign_run *run);
/* Set `key` and `group_key` of every slot. */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_find_slots(fsdp_foreign_run *run);
/* For each slot, add its options in this run and in the checkpoint to the report. */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_read_groups(fsdp_foreign_run *run);
