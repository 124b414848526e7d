/* Removes the parts of tensor names that wrappers of modules add.
 *
 * Note [Wrapped names]. A wrapper of a module adds a part to the names of the module's tensors.
 * Some parts may be anywhere in a name: "_orig_mod." of torch.compile, "_fsdp_wrapped_module." and
 * "_fpw_module." of FSDP1, "_checkpoint_wrapped_module." of activation checkpointing, and
 * "_forward_module." of Lightning Fabric. No other module has such a name, so these parts are
 * always removed. Two parts may also be names of ordinary modules: "module." of
 * DistributedDataParallel and "base_model.model." of PEFT. They are removed only if all names of a
 * model begin with them.
 *
 * Some prefixes, such as Lightning's "model.", look like the name of a module. To recognize them,
 * the names must be compared with those that the model expects. fsdp_weights_names_fit()
 * (src/pretrained/weights_names.h) does this and returns the prefix in an fsdp_name_change. */
#pragma once
#include <fsdp/hf.h>

#include "src/base/arena.h"

enum {
    FSDP_NAME_PREFIX_BYTES = 256
};

/* What must be removed from names in addition to the parts that wrappers add. {0}: nothing. */
typedef struct fsdp_name_change {
    char prefix[FSDP_NAME_PREFIX_BYTES]; /* prefix to remove, with its dot; "": nothing */
    bool every_module; /* call fsdp_name_drop_modules() before `prefix` is removed */
    bool base_layer;   /* remove "base_layer.", which PEFT adds in a layer that has an adapter */
    /* One of the names that wrappers have changed, perhaps truncated, for messages; "": there is
     * none. It has no effect on what is removed. */
    char wrapped[FSDP_NAME_PREFIX_BYTES];
    /* The program, Lit-LLaMA or LitGPT, whose tensors were translated (lit_names.h), for messages.
     * A static string; NULL: they were not translated. It has no effect on what is removed. */
    const char *translated_from;
} fsdp_name_change;

/* Remove from `name` the parts that are always removed (Note [Wrapped names]). */
void fsdp_name_unwrap(char *name);
/* Remove "module." from `name` wherever it begins after a dot or at the beginning of `name`. */
void fsdp_name_drop_modules(char *name);
/* Return the length in bytes of the wrapper prefix of names [n]. The wrapper prefix is the longest
 * common prefix that consists only of "module." and "base_model.model.", in any order and number.
 * PEFT expects "base_model.model." in the names of an adapter, so the wrapper prefix of such names
 * consists only of "module.". AveragedModel adds the name "n_averaged", which need not have the
 * prefix. The caller must first call fsdp_name_unwrap() for all names. */
size_t fsdp_names_wrapper_length(const char *const *names, size_t n);
/* Remove the wrapper prefix, which is the first `length` bytes of `name`, and return the rest. The
 * name "n_averaged" has no wrapper prefix (fsdp_names_wrapper_length()), so it is returned
 * unchanged. */
const char *fsdp_name_without(const char *name, size_t length);

/* Remove from names [n] the parts that wrappers add. If `change` is not NULL, also remove what
 * *change describes. `arena` owns the new names. Error messages begin with `label`. Return
 * FSDP_ERR_INVALID if two names would become equal; the message contains them. */
FSDP_MUST_CHECK fsdp_status fsdp_names_unwrap(const char *label, const fsdp_name_change *change,
                                              fsdp_arena *arena, const char **names, size_t n);

/* Change the names of all tensors of a reader like fsdp_names_unwrap(). Only the new names can then
 * be found. Call this at most once, and before other functions get the reader. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_unwrap_names(fsdp_checkpoint_reader *reader,
                                                         const fsdp_name_change *change);
