/* Removes the parts of tensor names that wrappers of modules add.
 *
 * Note [Wrapped names]. Wrappers of modules add a part to names, at any place: torch.compile adds
 * "_orig_mod.", FSDP1 "_fsdp_wrapped_module.", recomputation "_checkpoint_wrapped_module.",
 * Lightning Fabric "_forward_module.". No other module has such a name, so these parts are always
 * removed. DistributedDataParallel's "module." and PEFT's "base_model.model." could be names of
 * modules, so they are removed only if all names of a model begin with them. A prefix such as
 * Lightning's "model." can be distinguished from a module's name only by code that knows the
 * model's names; fsdp_weights_names_fit() (src/pretrained/weights_names.h) finds such a prefix, and
 * an fsdp_name_change removes it. */
#pragma once
#include <fsdp/hf.h>

#include "src/base/arena.h"

enum {
    FSDP_NAME_PREFIX_BYTES = 256
};

/* Parts to remove from names in addition to those that wrappers add. {0}: nothing. */
typedef struct fsdp_name_change {
    char prefix[FSDP_NAME_PREFIX_BYTES]; /* prefix to remove, with its dot; "": nothing */
    bool every_module; /* remove "module." at any place, before `prefix` is removed */
} fsdp_name_change;

/* Remove from `name` all parts of wrappers that cannot be a module's name (Note [Wrapped
 * names]). */
void fsdp_name_unwrap(char *name);
/* Remove every "module." from `name`. */
void fsdp_name_drop_modules(char *name);
/* Return the length in bytes of the longest prefix that all names [n] share and that consists only
 * of "module." and "base_model.model.", each any number of times. For the names of a PEFT adapter,
 * it consists only of "module.". The name "n_averaged", which AveragedModel adds, need not have the
 * prefix. Other wrappers must have been removed from the names. */
size_t fsdp_names_wrapper_length(const char *const *names, size_t n);
/* Return `name` without its wrapper prefix of `length` bytes. The name "n_averaged" has no
 * prefix. */
const char *fsdp_name_without(const char *name, size_t length);

/* Remove wrappers and `change` (NULL: nothing else) from names [n]; the arena owns the new names.
 * `label` is the prefix of messages. FSDP_ERR_INVALID naming two names that would become equal. */
FSDP_MUST_CHECK fsdp_status fsdp_names_unwrap(const char *label, const fsdp_name_change *change,
                                              fsdp_arena *arena, const char **names, size_t n);

/* Change the names of all tensors of a reader as fsdp_names_unwrap() does. The tensors are then
 * found by their new names. May be called once, before the reader is shared. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_unwrap_names(fsdp_checkpoint_reader *reader,
                                                         const fsdp_name_change *change);
