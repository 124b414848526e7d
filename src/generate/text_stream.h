/* Decodes ids one after the other, and gives out text as soon as later ids cannot change it. A
 * character of several tokens comes whole. All parts together are what fsdp_tokenizer_decode()
 * returns for all ids, without special tokens. Spaces are not cleaned up
 * (FSDP_DECODE_CONFIGURED): they may have been given out before what follows them is known. */
#pragma once
#include <fsdp/text.h>

typedef struct fsdp_text_stream {
    const fsdp_tokenizer *tokenizer; /* borrowed */
    fsdp_token_list ids;
    /* The ids before `given` are in the text that was given out. The text of the ids from `begin`
     * on is the context in which the next ids are decoded. */
    size_t begin, given;
} fsdp_text_stream;

/* Gets a part of the text. */
typedef fsdp_status fsdp_text_part_fn(void *arg, const char *text, size_t bytes);

void fsdp_text_stream_init(fsdp_text_stream *stream, const fsdp_tokenizer *tokenizer);
/* Let the text follow the ids [n], which are not given out: without them, a decoder may remove the
 * space at its beginning. Call this before the first id is added. */
FSDP_MUST_CHECK fsdp_status fsdp_text_stream_follow(fsdp_text_stream *stream, const int32_t *ids,
                                                    size_t n);
void fsdp_text_stream_fini(fsdp_text_stream *stream);
/* Add an id, and call `part` if there is more text that cannot change. */
FSDP_MUST_CHECK fsdp_status fsdp_text_stream_add(fsdp_text_stream *stream, int32_t id,
                                                 fsdp_text_part_fn *part, void *arg);
/* Call `part` with the rest of the text, if there is any. */
FSDP_MUST_CHECK fsdp_status fsdp_text_stream_end(fsdp_text_stream *stream, fsdp_text_part_fn *part,
                                                 void *arg);
