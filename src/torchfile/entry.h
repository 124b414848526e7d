/* Functions that the readers of all formats share. */
#pragma once
#include <fsdp/checkpoint_entry.h>

/* Write the shape as "[2, 3]" into `text`, truncated to `bytes`. */
void fsdp_checkpoint_shape_text(const int64_t *shape, int ndim, char *text, size_t bytes);

/* Sort entries by name, in byte order. */
void fsdp_checkpoint_entries_sort(fsdp_checkpoint_entry *entries, size_t n);
/* Return the entry `name` from `n` sorted entries, or NULL if there is none. */
const fsdp_checkpoint_entry *fsdp_checkpoint_entries_find(const fsdp_checkpoint_entry *entries,
                                                          size_t n, const char *name);
