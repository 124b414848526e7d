/* Finds the model's parameters and the optimizer's state in a checkpoint that another program
 * saved.
 *
 * Scripts choose their own keys, such as {"model", "optim"}, {"app": AppState} or {"state_dict",
 * "optimizer"}. The model may also be at the top, and names may have the prefix of a wrapper. So
 * parameters are recognized by the end of their names. The model's prefix is the one under which
 * most parameters are found. The keys of optimizer state are parameter names (get_state_dict(),
 * FSDP.optim_state_dict()) or parameter numbers (optimizer.state_dict()). Wrappers of modules add
 * the parts "_fsdp_wrapped_module.", "_checkpoint_wrapped_module." and "_orig_mod." to names. These
 * parts are ignored. */
#pragma once
#include <fsdp/nn.h>

#include "src/base/arena.h"
#include "src/source/source.h"

/* An item, and its name without the parts that wrappers add. */
typedef struct fsdp_foreign_item {
    const char *name;
    const fsdp_source_item *item;
} fsdp_foreign_item;

/* All items of one source. */
typedef struct fsdp_foreign_names {
    fsdp_source *source; /* owned */
    fsdp_arena arena;
    fsdp_foreign_item *items; /* [n] sorted by name, in byte order */
    size_t n;
} fsdp_foreign_names;

FSDP_MUST_CHECK fsdp_status fsdp_foreign_names_open(const char *path, fsdp_foreign_names *names);
void fsdp_foreign_names_close(fsdp_foreign_names *names); /* accepts a zeroed struct */
/* Set *item to the item whose name is the formatted text, or to NULL if there is none. The names of
 * items do not include the parts that wrappers add. Returns FSDP_ERR_INVALID if two items have this
 * name. */
FSDP_PRINTF(3, 4)
FSDP_MUST_CHECK fsdp_status fsdp_foreign_names_find(const fsdp_foreign_names *names,
                                                    const fsdp_source_item **item,
                                                    const char *format, ...);
/* Return the index of the first item whose name begins with `prefix`, or names->n if there is none.
 * All other items with this prefix follow it. */
size_t fsdp_foreign_names_lower_bound(const fsdp_foreign_names *names, const char *prefix);
/* Return the keys at the top of the checkpoint as a text for messages, such as "'app', 'epoch'".
 * The caller owns the text, which is NULL if memory ran out. */
char *fsdp_foreign_names_describe_top(const fsdp_foreign_names *names);

/* Find the prefix of the model's keys, such as "app.model." or "". `all` has every name of every
 * parameter. The caller owns *prefix, which is NULL if no parameter is found. Returns
 * FSDP_ERR_INVALID if two prefixes fit equally well; the message names them. */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_find_model(const fsdp_foreign_names *names,
                                                    const fsdp_parameter_list *all, char **prefix);

/* The place of the optimizer's state in the checkpoint. */
typedef struct fsdp_foreign_optimizer {
    char *base;    /* what comes before "state." and "param_groups." in keys, such as "app.optim.";
                      owned; NULL if there is no optimizer state */
    char *wrapper; /* prefix that a wrapper added to the name of the parameter in keys
                      "state.<parameter>.<key>", such as "module."; "" if by_number; owned */
    bool by_number;
} fsdp_foreign_optimizer;

/* Find the place of the optimizer's state. `all` has every name of every parameter. Set
 * optimizer->base to NULL if there is no such state. Returns FSDP_ERR_INVALID if two places fit
 * equally well; the message names them. */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_find_optimizer(const fsdp_foreign_names *names,
                                                        const fsdp_parameter_list *all,
                                                        fsdp_foreign_optimizer *optimizer);
void fsdp_foreign_optimizer_fini(fsdp_foreign_optimizer *optimizer); /* accepts a zeroed struct */
