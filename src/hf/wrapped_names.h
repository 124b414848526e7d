/* Names of tensors without what wrappers of modules put into them.
 *
 * Note [Wrapped names]
 * torch.compile puts "_orig_mod." into names, FSDP1 "_fsdp_wrapped_module.", recomputation
 * "_checkpoint_wrapped_module.", Lightning Fabric "_forward_module.", all of them at any place.
 * No module has such a name by itself, so they are always taken off. DistributedDataParallel's
 * "module." and PEFT's "base_model.model." could be names of modules: they are taken off where all
 * names of a model begin with them. A prefix that only who knows the model's names can tell from a
 * part of them, as Lightning's "model.", is an fsdp_name_change (src/pretrained/weights_names.h).
 */
#pragma once
#include <fsdp/hf.h>

#include "src/base/arena.h"

enum {
    FSDP_NAME_PREFIX_BYTES = 256
};

/* What names lose besides. All zero: nothing. */
typedef struct fsdp_name_change {
    char prefix[FSDP_NAME_PREFIX_BYTES]; /* at their beginning, with its dot; "": nothing */
    bool every_module;                   /* "module." at any place, before `prefix` */
} fsdp_name_change;

/* Without the wrappers whose names are no module's, at any place. In place. */
void fsdp_name_unwrap(char *name);
/* Without "module." at any place. In place. */
void fsdp_name_drop_modules(char *name);
/* Bytes of "module." and "base_model.model.", in any order and number, that all of names [n]
 * begin with; they have no other wrappers. "n_averaged", which AveragedModel adds, need not. */
size_t fsdp_names_wrapper_length(const char *const *names, size_t n);
/* The wrapper prefix of `length` bytes off `name`, if it has one. */
const char *fsdp_name_without(const char *name, size_t length);

/* Replace names [n] by what is left of them without wrappers and without `change` (NULL: nothing
 * else); new texts are the arena's. `label` begins messages.
 * FSDP_ERR_INVALID naming two names of which the same is left. */
FSDP_MUST_CHECK fsdp_status fsdp_names_unwrap(const char *label, const fsdp_name_change *change,
                                              fsdp_arena *arena, const char **names, size_t n);

/* The same of all tensors of a reader, once, before it is shared: they are found by their new
 * names. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_unwrap_names(fsdp_checkpoint_reader *reader,
                                                         const fsdp_name_change *change);
