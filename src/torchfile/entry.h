/* Private functions on fsdp_checkpoint_entry, which describes a tensor of a checkpoint file of any
 * format. */
#pragma once
#include <fsdp/checkpoint_entry.h>

/* Write the shape into `text` [bytes] in the form "[2, 3]". A text that is too long is
 * truncated. */
void fsdp_checkpoint_shape_text(const int64_t *shape, int ndim, char *text, size_t bytes);

/* Sort entries by name, in byte order. */
void fsdp_checkpoint_entries_sort(fsdp_checkpoint_entry *entries, size_t n);
/* Return the entry with the name `name`, or NULL if there is none. `entries` [n] must be sorted by
 * name. */
const fsdp_checkpoint_entry *fsdp_checkpoint_entries_find(const fsdp_checkpoint_entry *entries,
                                                          size_t n, const char *name);
