/* Decodes ids one after the other, and gives out text as soon as later ids cannot change it. A
 * character of several tokens comes whole. All parts together are what fsdp_tokenizer_decode()
 * returns for all ids, without special tokens. Spaces are not cleaned up
 * (FSDP_DECODE_CONFIGURED): they may have been given out before what follows them is known. */
#pragma once
#include <fsdp/text.h>

typedef struct fsdp_text_stream {
    const fsdp_tokenizer *tokenizer; /* borrowed */
    fsdp_token_list ids;
    /* The text of ids [0, given) has already been given out. Ids from `begin` on are decoded
     * together with the next ids, as their context. */
    size_t begin, given;
} fsdp_text_stream;

/* Called with the next part of the text. */
typedef fsdp_status fsdp_text_part_fn(void *arg, const char *text, size_t bytes);

void fsdp_text_stream_init(fsdp_text_stream *stream, const fsdp_tokenizer *tokenizer);
/* Decode the text as a continuation of `ids` [n], whose own text is not given out. Without this
 * context, a decoder may remove the space at the beginning of the text. Call this before the first
 * id is added. */
FSDP_MUST_CHECK fsdp_status fsdp_text_stream_follow(fsdp_text_stream *stream, const int32_t *ids,
                                                    size_t n);
void fsdp_text_stream_fini(fsdp_text_stream *stream);
/* Add an id, and call `part` if there is more text that cannot change. */
FSDP_MUST_CHECK fsdp_status fsdp_text_stream_add(fsdp_text_stream *stream, int32_t id,
                                                 fsdp_text_part_fn *part, void *arg);
/* Call `part` with the rest of the text, if there is any. */
FSDP_MUST_CHECK fsdp_status fsdp_text_stream_end(fsdp_text_stream *stream, fsdp_text_part_fn *part,
                                                 void *arg);
