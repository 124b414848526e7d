/* Writes the headers and index files of the token file formats that src/data reads. */
#pragma once
#include <stdint.h>

#include "src/data/tokens/token_file.h"

/* Make the header of a token file of llm.c. `width` is the number of bytes of a token, 2 or 4. */
void fsdp_llmc_header(int width, int64_t tokens, unsigned char header[FSDP_LLMC_HEADER_BYTES]);

/* Write Megatron's index file at `path`. Each sequence is a document of its own. `sizes` is the
 * path of a file with the lengths of the `rows` sequences, as int32 in the byte order of the
 * machine. */
FSDP_MUST_CHECK fsdp_status fsdp_megatron_index_write(const char *path, const char *sizes,
                                                      int64_t rows, int width);
