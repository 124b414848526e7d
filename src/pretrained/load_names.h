/* The names under which a file may hold a parameter. */
#pragma once
#include <fsdp/pretrained.h>

/* The entry of a file under a name; NULL: none. */
typedef const void *fsdp_load_lookup_fn(const void *file, const char *name);

/* The tensor of parameter `name`, found as transformers finds it:
 * - under its own name;
 * - without `base_prefix` in a file of the bare model ("bert.pooler.dense.weight" as
 *   "pooler.dense.weight"), with it in a file of a model with a head. NULL: no prefix;
 * - each of these with gamma and beta for LayerNorm's weight and bias, as old versions wrote.
 *
 * *found is NULL if there is none. */
FSDP_MUST_CHECK fsdp_status fsdp_load_lookup(fsdp_load_lookup_fn *lookup, const void *file,
                                             const char *base_prefix, const char *name,
                                             const void **found);
/* Is it a buffer that old versions stored, or T5's bias that cross-attention never used? */
bool fsdp_load_is_old_buffer(const char *name);
/* The same for a reader; *entry is NULL if there is none. */
FSDP_MUST_CHECK fsdp_status fsdp_load_find(const fsdp_checkpoint_reader *reader,
                                           const char *base_prefix, const char *name,
                                           const fsdp_checkpoint_entry **entry);
