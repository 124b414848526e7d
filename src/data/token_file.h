/* One file of token ids, mapped: llm.c's with a header, or nanoGPT's without (fsdp_dataset_open()
 * says which). Or ids in memory that a file of texts gave (text_tokens.h). */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "src/base/io.h"

typedef struct fsdp_token_file {
    char *path; /* owned */
    fsdp_mapping mapping;
    unsigned char *memory;       /* owned; NULL: there is a mapping */
    const unsigned char *tokens; /* [count * width] bytes of one of them, little end first */
    int width;                   /* bytes of a token: 2 or 4 */
    bool plain;                  /* no header says which tokenizer's ids these are */
    int64_t count;
} fsdp_token_file;

/* FSDP_ERR_FORMAT if the header is of another kind or version, or does not fit the file's size, or
 * the file is no token file; FSDP_ERR_UNSUPPORTED for Megatron's. `path` ends in .bin. */
FSDP_MUST_CHECK fsdp_status fsdp_token_file_open(const char *path, fsdp_token_file *file);
void fsdp_token_file_close(fsdp_token_file *file); /* all zero afterwards */

/* Tokens [first, first + count), which must be there. FSDP_ERR_FORMAT naming file and position of
 * one that is not below vocab_size. */
FSDP_MUST_CHECK fsdp_status fsdp_token_file_read(const fsdp_token_file *file, int64_t first,
                                                 int64_t count, int64_t vocab_size, int32_t *ids);
/* Are all tokens below vocab_size? One pass over the file. */
FSDP_MUST_CHECK fsdp_status fsdp_token_file_check(const fsdp_token_file *file, int64_t vocab_size);
