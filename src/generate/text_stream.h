/* Decodes the ids of a sequence one after the other, and passes each part of the text to a callback
 * as soon as later ids cannot change it. A character of several tokens is passed as a whole. All
 * parts together are the text that fsdp_tokenizer_decode() returns for all ids, without special
 * tokens. Unlike with FSDP_DECODE_CONFIGURED, spaces are never cleaned up. The text after a space
 * decides whether the space is removed, but the space may be passed to the callback before that
 * text is known. */
#pragma once
#include <fsdp/text.h>

typedef struct fsdp_text_stream {
    const fsdp_tokenizer *tokenizer; /* borrowed */
    fsdp_token_list ids;
    /* The text of ids [0, given) has been passed to the callback. Ids [begin, given) are decoded
     * again, together with the next ids, as their context. */
    size_t begin, given;
} fsdp_text_stream;

/* A callback that gets the next part of the text. */
typedef fsdp_status fsdp_text_part_fn(void *arg, const char *text, size_t bytes);

void fsdp_text_stream_init(fsdp_text_stream *stream, const fsdp_tokenizer *tokenizer);
/* Call this before the first id is added, if the text continues the text of `ids` [n]. The text of
 * `ids` is not passed to the callback, but `ids` are decoded together with the first new ids.
 * Without this call, a decoder may remove a space at the beginning of the new text. */
FSDP_MUST_CHECK fsdp_status fsdp_text_stream_follow(fsdp_text_stream *stream, const int32_t *ids,
                                                    size_t n);
void fsdp_text_stream_fini(fsdp_text_stream *stream);
/* Add an id. If the text then has a new part that later ids cannot change, call `part` with it. */
FSDP_MUST_CHECK fsdp_status fsdp_text_stream_add(fsdp_text_stream *stream, int32_t id,
                                                 fsdp_text_part_fn *part, void *arg);
/* Call `part` with the rest of the text, if there is any. */
FSDP_MUST_CHECK fsdp_status fsdp_text_stream_end(fsdp_text_stream *stream, fsdp_text_part_fn *part,
                                                 void *arg);
