#include "src/text/parts/token_texts.h"

#include "src/base/alloc.h"

void fsdp_token_texts_fini(fsdp_token_texts *texts)
{
    fsdp_str_fini(&texts->bytes);
    fsdp_free(texts->ends);
    *texts = (fsdp_token_texts){0};
}

void fsdp_token_texts_clear(fsdp_token_texts *texts)
{
    texts->bytes.len = texts->len = 0;
}

fsdp_status fsdp_token_texts_end(fsdp_token_texts *texts)
{
    if (texts->bytes.failed || !FSDP_GROW(texts->ends, texts->cap, texts->len + 1))
        return fsdp_error_nomem();
    texts->ends[texts->len++] = texts->bytes.len;
    return FSDP_OK;
}

const char *fsdp_token_texts_at(const fsdp_token_texts *texts, size_t i, size_t *length)
{
    const size_t begin = i ? texts->ends[i - 1] : 0;
    *length = texts->ends[i] - begin;
    return texts->bytes.data ? texts->bytes.data + begin : "";
}
