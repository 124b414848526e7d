/* Finding the model's parameters and the optimizer's state in a checkpoint that another program
 * saved.
 *
 * Scripts choose their own keys: {"model", "optim"}, {"app": AppState}, {"state_dict",
 * "optimizer"}, a model at the top, names with the prefix of a wrapper. So names are found by their
 * end: the prefix is the one under which most parameters are found. Optimizer state is keyed by
 * parameter name (get_state_dict(), FSDP.optim_state_dict()) or by parameter number
 * (optimizer.state_dict()). Parts of names that wrappers of modules add are ignored:
 * "_fsdp_wrapped_module.", "_checkpoint_wrapped_module." and "_orig_mod.". */
#pragma once
#include <fsdp/nn.h>

#include "src/base/arena.h"
#include "src/source/source.h"

/* An item with its name without wrappers. */
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
void fsdp_foreign_names_close(fsdp_foreign_names *names); /* accepts all zero */
/* Find the item whose name is the formatted text; *item is NULL if there is none. FSDP_ERR_INVALID
 * if two items have that name once wrappers are ignored. */
FSDP_PRINTF(3, 4)
FSDP_MUST_CHECK fsdp_status fsdp_foreign_names_find(const fsdp_foreign_names *names,
                                                    const fsdp_source_item **item,
                                                    const char *format, ...);
/* Index of the first item whose name begins with `prefix`; the others follow it. names->n if there
 * is none. */
size_t fsdp_foreign_names_lower(const fsdp_foreign_names *names, const char *prefix);
/* Keys at the top, for messages: "'app', 'epoch'"; NULL if memory ran out. Owned by the caller. */
char *fsdp_foreign_names_top(const fsdp_foreign_names *names);

/* Find the prefix of the model's parameters ("app.model.", ""), which the caller owns. `all` has
 * every name of every parameter. *prefix is NULL if no parameter is found. FSDP_ERR_INVALID naming
 * two prefixes that fit equally well. */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_find_model(const fsdp_foreign_names *names,
                                                    const fsdp_parameter_list *all, char **prefix);

/* The place of the optimizer's state. */
typedef struct fsdp_foreign_optimizer {
    char *base;    /* prefix of "state." and "param_groups.", such as "app.optim."; owned. NULL: not
                      found */
    char *wrapper; /* prefix of the parameters' names, such as "module."; "" with numbers; owned */
    bool by_number;
} fsdp_foreign_optimizer;

/* FSDP_ERR_INVALID naming two places that fit equally well. */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_find_optimizer(const fsdp_foreign_names *names,
                                                        const fsdp_parameter_list *all,
                                                        fsdp_foreign_optimizer *optimizer);
void fsdp_foreign_optimizer_fini(fsdp_foreign_optimizer *optimizer); /* accepts all zero */
