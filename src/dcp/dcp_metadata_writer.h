/* Makes the content of the file .metadata. write_metadata() in dcp_writer.c writes this content to
 * the file. The functions of dcp_metadata.h read it. */
#pragma once
#include "src/dcp/dcp_metadata.h"

/* Make the content of .metadata, set *bytes to its size, and return the content, which the caller
 * owns. If memory ran out, set the error message and return NULL. PyTorch 2.3 to 2.15 can load the
 * file.
 *
 * The content lists `items` [n] in the given order. An item that is a tensor must have its fqn,
 * dtype and shape, and the boxes and places of its chunks. An item that is a plain value must have
 * its fqn and the place of its chunk. The path of an item is a TUPLE of text and ints, or NULL.
 * `companion` is the name of a further file in the folder of the checkpoint, or NULL if there is
 * none. When .metadata is read, fsdp_dcp_metadata_companion() returns this name. */
char *fsdp_dcp_metadata_pickle(const fsdp_dcp_item *items, size_t n, const char *companion,
                               size_t *bytes);
