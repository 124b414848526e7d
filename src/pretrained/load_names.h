/* Finds a parameter in a file under any of the names that the file may use for it. */
#pragma once
#include <fsdp/pretrained.h>

/* Return the entry of a file that has this name, or NULL. */
typedef const void *fsdp_load_lookup_fn(const void *file, const char *name);

/* Find the tensor of parameter `name` in a file, as transformers does. These names are tried:
 * - `name`;
 * - if `name` begins with `base_prefix` and a dot: the rest of it, as in a file of the bare model
 *   ("pooler.dense.weight" for "bert.pooler.dense.weight");
 * - if it does not: `base_prefix`, a dot and `name`, as in a file of a model with a head;
 * - after each of these, for the weight or bias of a LayerNorm: the name with gamma or beta, as in
 *   files of old versions.
 *
 * If `base_prefix` is NULL, the second and third are not tried. *found is NULL if the file has none
 * of the names. */
FSDP_MUST_CHECK fsdp_status fsdp_load_lookup(fsdp_load_lookup_fn *lookup, const void *file,
                                             const char *base_prefix, const char *name,
                                             const void **found);
/* Is `name` a buffer that old versions stored, or the position bias of T5's cross-attention, which
 * was never used? */
bool fsdp_load_is_old_buffer(const char *name);
/* Find parameter `name` in a reader, as fsdp_load_lookup() does. *entry is NULL if there is
 * none. */
FSDP_MUST_CHECK fsdp_status fsdp_load_find(const fsdp_checkpoint_reader *reader,
                                           const char *base_prefix, const char *name,
                                           const fsdp_checkpoint_entry **entry);
