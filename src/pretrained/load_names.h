/* Finds a parameter in a file under any of the names that the file may use for it. */
#pragma once
#include <fsdp/pretrained.h>

/* Return the entry `name` of `file`, or NULL if there is none. */
typedef const void *fsdp_load_lookup_fn(const void *file, const char *name);

/* Find the tensor of parameter `name` in a file, as transformers does. First, `name` itself is
 * looked up. If the file does not have it, and `base_prefix` is not NULL, a second name is looked
 * up:
 * - If `name` begins with `base_prefix` and a dot, the second name is the rest of `name`. A file of
 *   the bare model has such names: "pooler.dense.weight" for "bert.pooler.dense.weight".
 * - Otherwise, the second name is `base_prefix`, a dot and `name`. A file of a model with a head
 *   has such names.
 *
 * In files of old versions of transformers, LayerNorm.weight is LayerNorm.gamma, and LayerNorm.bias
 * is LayerNorm.beta. So if a name with one of the new endings is not found, the name with the old
 * ending is looked up. *found is NULL if no name is found. */
FSDP_MUST_CHECK fsdp_status fsdp_load_lookup(fsdp_load_lookup_fn *lookup, const void *file,
                                             const char *base_prefix, const char *name,
                                             const void **found);
/* Return true if `name` is a tensor that old versions of transformers saved, although no model
 * reads it: a buffer, or the position bias of T5's cross-attention. */
bool fsdp_load_is_old_buffer(const char *name);
/* Find the entry of parameter `name` in a reader, as fsdp_load_lookup() does. *entry is NULL if
 * there is none. */
FSDP_MUST_CHECK fsdp_status fsdp_load_find(const fsdp_checkpoint_reader *reader,
                                           const char *base_prefix, const char *name,
                                           const fsdp_checkpoint_entry **entry);
