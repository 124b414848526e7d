/* Interactive conversations, and texts that are shown while they are generated. */
#pragma once
#include "src/generate/generate_run_internal.h"
#include "src/generate/text_stream.h"

/* Shows a text while it is generated. */
typedef struct fsdp_chat_stream {
    const generate_run *run;
    fsdp_text_stream text;
    fsdp_str *copy; /* gets the text, too; NULL: not wanted */
    /* The text goes on with that of these ids; NULL: it is a text of its own. */
    const fsdp_token_list *follows;
} fsdp_chat_stream;

void fsdp_chat_stream_init(fsdp_chat_stream *stream, const generate_run *run);
/* An fsdp_generate_id_fn whose argument is an fsdp_chat_stream. */
fsdp_status fsdp_chat_stream_id(void *stream, int32_t row, int32_t sequence, int32_t id);
/* Show the rest of the text and a line end if `status` is FSDP_OK, and free what the stream has. */
FSDP_MUST_CHECK fsdp_status fsdp_chat_stream_end(fsdp_chat_stream *stream, fsdp_status status);

/* Run the conversation until the input ends or the user ends it. A line is a message, or a command:
 * /exit, /clear, /system TEXT. Collective; only rank 0 reads and shows. */
FSDP_MUST_CHECK fsdp_status fsdp_chat_run(generate_run *run);
