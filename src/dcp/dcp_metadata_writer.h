/* Writing what dcp_metadata.h reads. */
#pragma once
#include "src/dcp/dcp_metadata.h"

/* The file .metadata of `items` [n], in their order, which PyTorch 2.3 to 2.15 load: [*bytes], the
 * caller's. Of an item, fqn, dtype, shape, and the chunks' boxes and places must be set; path is
 * a tuple of text and ints, or NULL. `companion`: what fsdp_dcp_metadata_companion() will say.
 * NULL with an error if memory ran out. */
char *fsdp_dcp_metadata_pickle(const fsdp_dcp_item *items, size_t n, const char *companion,
                               size_t *bytes);
