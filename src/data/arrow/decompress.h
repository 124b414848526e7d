/* Decompresses the buffers of a batch. */
#pragma once
#include "src/data/arrow/layout.h"

/* Decompress `buffer`, as it is in the body of a compressed batch: an int64 with the length of its
 * contents, and the compressed contents; if the length is -1, the contents are not compressed. *out
 * is set to the contents. *owned is set to the memory that has them, to be freed with fsdp_free(),
 * or to NULL if they are a part of `buffer`. Contents of more than `max_bytes` bytes are refused.
 */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_decompress(fsdp_arrow_codec codec, fsdp_arrow_buffer buffer,
                                                  size_t max_bytes, fsdp_arrow_buffer *out,
                                                  void **owned);
