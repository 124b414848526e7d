/* One mapped file of token ids: llm.c's with a header, or nanoGPT's without (see
 * fsdp_dataset_open()). Or ids in memory from a file of texts (text_tokens.h). */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "src/base/io.h"

typedef struct fsdp_token_file {
    char *path; /* owned */
    fsdp_mapping mapping;
    unsigned char *memory;       /* owned; NULL if the file is mapped */
    const unsigned char *tokens; /* [count * width] bytes in `mapping` or `memory`, little endian */
    int width;                   /* bytes of a token: 2 or 4 */
    bool plain;                  /* no header, so it is unknown which tokenizer's ids these are */
    int64_t count;
} fsdp_token_file;

/* FSDP_ERR_FORMAT if the header is of another kind or version or does not fit the file's size, or
 * if the file is not a token file. FSDP_ERR_UNSUPPORTED for Megatron's. `path` ends in .bin. */
FSDP_MUST_CHECK fsdp_status fsdp_token_file_open(const char *path, fsdp_token_file *file);
void fsdp_token_file_close(fsdp_token_file *file); /* all zero afterwards */

/* Read tokens [first, first + count), which must exist. FSDP_ERR_FORMAT, with file and position, if
 * one is not below vocab_size. */
FSDP_MUST_CHECK fsdp_status fsdp_token_file_read(const fsdp_token_file *file, int64_t first,
                                                 int64_t count, int64_t vocab_size, int32_t *ids);
/* FSDP_OK if all tokens are below vocab_size. Reads the whole file. */
FSDP_MUST_CHECK fsdp_status fsdp_token_file_check(const fsdp_token_file *file, int64_t vocab_size);
