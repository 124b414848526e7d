/* Makes the content of the file .metadata. write_metadata() in dcp_writer.c writes the file, and
 * dcp_metadata.h reads it. */
#pragma once
#include "src/dcp/dcp_metadata.h"

/* Make the content of .metadata. It lists `items` [n] in the order given. PyTorch 2.3 to 2.15 can
 * load it. The caller owns the result [*bytes]. Each item must have its fqn, dtype and shape, and
 * the boxes and places of its chunks. Its path is a tuple of text and ints, or NULL. `companion` is
 * what fsdp_dcp_metadata_companion() will return for this file, or NULL. Returns NULL with an error
 * if memory ran out. */
char *fsdp_dcp_metadata_pickle(const fsdp_dcp_item *items, size_t n, const char *companion,
                               size_t *bytes);
