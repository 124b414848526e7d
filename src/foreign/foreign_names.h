/* Where a checkpoint that another program saved holds the model's parameters and the optimizer's
 * state.
 *
 * Scripts choose their own keys: {"model", "optim"}, {"app": AppState}, {"state_dict",
 * "optimizer"}, a model at the top, names with the prefix of a wrapper. So names are found by their
 * end: the prefix is the one under which most parameters are there. Optimizer state is keyed by
 * parameter name (get_state_dict(), FSDP.optim_state_dict()) or by parameter number
 * (optimizer.state_dict()). Inside names, what wrappers of modules put there is ignored:
 * "_fsdp_wrapped_module.", "_checkpoint_wrapped_module." and "_orig_mod.". */
#pragma once
#include <fsdp/nn.h>

#include "src/base/arena.h"
#include "src/source/source.h"

/* An item under its name without wrappers. */
typedef struct fsdp_foreign_item {
    const char *name;
    const fsdp_source_item *item;
} fsdp_foreign_item;

/* All items of one source. */
typedef struct fsdp_foreign_names {
    fsdp_source *source; /* owned */
    fsdp_arena arena;
    fsdp_foreign_item *items; /* [n] by name, in byte order */
    size_t n;
} fsdp_foreign_names;

FSDP_MUST_CHECK fsdp_status fsdp_foreign_names_open(const char *path, fsdp_foreign_names *names);
void fsdp_foreign_names_close(fsdp_foreign_names *names); /* accepts all zero */
/* The item whose name is the format's text; *item is NULL if there is none. FSDP_ERR_INVALID if two
 * items have that name once wrappers are ignored. */
FSDP_PRINTF(3, 4)
FSDP_MUST_CHECK fsdp_status fsdp_foreign_names_find(const fsdp_foreign_names *names,
                                                    const fsdp_source_item **item,
                                                    const char *format, ...);
/* The first item whose name begins with `prefix`; those after it follow. names->n: none. */
size_t fsdp_foreign_names_lower(const fsdp_foreign_names *names, const char *prefix);
/* Keys at the top, for messages: "'app', 'epoch'"; NULL if memory ran out. The caller's. */
char *fsdp_foreign_names_top(const fsdp_foreign_names *names);

/* The prefix of the model's parameters ("app.model.", ""); the caller's. `all` has every name of
 * every parameter. NULL: no parameter is there. FSDP_ERR_INVALID naming two prefixes that fit
 * alike.
 */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_find_model(const fsdp_foreign_names *names,
                                                    const fsdp_parameter_list *all, char **prefix);

/* Where the optimizer is. */
typedef struct fsdp_foreign_optimizer {
    char *base;    /* "app.optim.": before "state." and "param_groups."; owned. NULL: nowhere */
    char *wrapper; /* "module.": before the parameters' names; "" with numbers; owned */
    bool by_number;
} fsdp_foreign_optimizer;

/* FSDP_ERR_INVALID naming two that fit alike. */
FSDP_MUST_CHECK fsdp_status fsdp_foreign_find_optimizer(const fsdp_foreign_names *names,
                                                        const fsdp_parameter_list *all,
                                                        fsdp_foreign_optimizer *optimizer);
void fsdp_foreign_optimizer_fini(fsdp_foreign_optimizer *optimizer); /* accepts all zero */
