/* Writes the headers and indices of token files that src/data reads. */
#pragma once
#include <stdint.h>

#include "src/data/tokens/token_file.h"

/* Make the header of a file of llm.c. `width`, the bytes of a token, is 2 or 4. */
void fsdp_llmc_header(int width, int64_t tokens, unsigned char header[FSDP_LLMC_HEADER_BYTES]);

/* Write Megatron's index `path` for sequences, each of which is a document. `sizes` is the path of
 * a file that has the lengths of the `rows` sequences, as int32 in the byte order of the
 * machine. */
FSDP_MUST_CHECK fsdp_status fsdp_megatron_index_write(const char *path, const char *sizes,
                                                      int64_t rows, int width);
