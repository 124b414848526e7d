/* What readers of any format share. */
#pragma once
#include <fsdp/checkpoint_entry.h>

/* "[2, 3]" into `text`, cut to fit. */
void fsdp_checkpoint_shape_text(const int64_t *shape, int ndim, char *text, size_t bytes);

/* By name, in byte order; and the entry of `name` among [n] sorted so, NULL if there is none. */
void fsdp_checkpoint_entries_sort(fsdp_checkpoint_entry *entries, size_t n);
const fsdp_checkpoint_entry *fsdp_checkpoint_entries_find(const fsdp_checkpoint_entry *entries,
                                                          size_t n, const char *name);
