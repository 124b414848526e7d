/* Decompresses the buffers of a batch. */
#pragma once
#include "src/data/arrow/layout.h"

/* Decompress `buffer`, a buffer in the body of a compressed batch. It consists of an int64, the
 * length of the contents, and the compressed contents; if the length is -1, the contents are not
 * compressed. Set *out to the contents. Set *owned to the memory of the contents, which the caller
 * frees with fsdp_free(), or to NULL if the contents are a part of `buffer`. Contents of more than
 * `max_bytes` bytes are refused. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_decompress(fsdp_arrow_codec codec, fsdp_arrow_buffer buffer,
                                                  size_t max_bytes, fsdp_arrow_buffer *out,
                                                  void **owned);
