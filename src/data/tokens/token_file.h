/* Token ids, in a mapped file or in memory. A file has the format of llm.c, with a header, or of
 * nanoGPT, without a header, or it belongs to a dataset of Megatron (see fsdp_dataset_open()). Ids
 * in memory come from texts that were tokenized (text_tokens.h). */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include <fsdp/data.h>

#include "src/base/io.h"

typedef struct fsdp_token_file {
    char *path; /* owned */
    fsdp_mapping mapping;
    unsigned char *memory;       /* owned; NULL if the file is mapped */
    const unsigned char *tokens; /* [count * width] bytes in `mapping` or `memory`, little endian */
    int width;                   /* bytes of a token: 1, 2, 4 or 8 */
    bool plain;     /* the file has no header, so the tokenizer of the ids is unknown */
    bool has_dtype; /* the file has no header, and the caller gave the type of its tokens */
    int64_t count;
} fsdp_token_file;

/* The header of a file of llm.c (token_file.c). */
enum {
    FSDP_LLMC_HEADER_BYTES = 256 * 4
};
typedef struct fsdp_llmc_kind {
    uint32_t magic, version;
    int width; /* bytes of a token */
} fsdp_llmc_kind;
extern const fsdp_llmc_kind fsdp_llmc_kinds[2];

/* The header of Megatron's index (token_index.c). */
enum {
    FSDP_MEGATRON_VERSION = 1,
    FSDP_MEGATRON_MAGIC_BYTES = 9,
    FSDP_MEGATRON_HEADER_BYTES = FSDP_MEGATRON_MAGIC_BYTES + 8 + 1 + 8 + 8
};
extern const char fsdp_megatron_magic[FSDP_MEGATRON_MAGIC_BYTES];
/* Return the code of Megatron's index for tokens of `width` bytes. `width` is 1, 2, 4 or 8. */
unsigned char fsdp_megatron_code(int width);

/* Open and map a file. `path` must end in .bin. `dtype` is the type of the tokens if the file has
 * no header. If a file with the ending .idx is next to it, both are a dataset of Megatron. Returns
 * FSDP_ERR_FORMAT for a file of another kind, for an unknown magic or version, and for a header or
 * index that does not match the size of the file. */
FSDP_MUST_CHECK fsdp_status fsdp_token_file_open(const char *path, fsdp_token_dtype dtype,
                                                 fsdp_token_file *file);
/* Read Megatron's index at `path`, and check that it fits a token file of `bytes` bytes. Set *width
 * to the number of bytes per token. (token_index.c) */
FSDP_MUST_CHECK fsdp_status fsdp_token_index_read(const char *path, size_t bytes, int *width);
void fsdp_token_file_close(fsdp_token_file *file); /* *file is {0} afterwards */

/* Read tokens [first, first + count), which must exist, into `ids` [count]. Returns FSDP_ERR_FORMAT
 * if a token is not below vocab_size. The message contains file and position. */
FSDP_MUST_CHECK fsdp_status fsdp_token_file_read(const fsdp_token_file *file, int64_t first,
                                                 int64_t count, int64_t vocab_size, int32_t *ids);
/* Read the complete file and check that all tokens are below vocab_size. */
FSDP_MUST_CHECK fsdp_status fsdp_token_file_check(const fsdp_token_file *file, int64_t vocab_size);
