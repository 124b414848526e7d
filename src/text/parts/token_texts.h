/* A list of texts in one block of memory: the tokens that are being decoded. Initialize it with
 * {0}. */
#pragma once
#include "src/base/str.h"

typedef struct fsdp_token_texts {
    fsdp_str bytes; /* all texts, one after another */
    size_t *ends;   /* [len]: the positions in `bytes` at which the texts end */
    size_t len, cap;
} fsdp_token_texts;

void fsdp_token_texts_fini(fsdp_token_texts *texts);
void fsdp_token_texts_clear(fsdp_token_texts *texts);
/* End a text: the bytes that have been appended to `bytes` since the last call become the next text
 * of the list. */
FSDP_MUST_CHECK fsdp_status fsdp_token_texts_end(fsdp_token_texts *texts);
/* Return text i, which does not end in NUL, and set *length. */
const char *fsdp_token_texts_at(const fsdp_token_texts *texts, size_t i, size_t *length);
