/* Interactive conversations on a terminal, and fsdp_chat_stream, which shows a text while it is
 * generated. */
#pragma once
#include "src/generate/generate_run_internal.h"
#include "src/generate/text_stream.h"

/* Shows the text of a sequence on the terminal while its ids are generated. */
typedef struct fsdp_chat_stream {
    const generate_run *run;
    fsdp_text_stream text;
    fsdp_str *copy; /* the shown text is also appended to this string; NULL: it is not appended */
    /* The ids that come before the text. They are not shown, but determine how the first new id is
     * decoded. NULL: the text begins a new message, and no ids come before it. */
    const fsdp_token_list *follows;
} fsdp_chat_stream;

void fsdp_chat_stream_init(fsdp_chat_stream *stream, const generate_run *run);
/* An fsdp_generate_id_fn whose argument is an fsdp_chat_stream. */
fsdp_status fsdp_chat_stream_id(void *stream, int32_t row, int32_t sequence, int32_t id);
/* If `status` is FSDP_OK, show the rest of the text and a line end. In any case, free the memory of
 * the stream. Return `status`, or the error from showing the text. */
FSDP_MUST_CHECK fsdp_status fsdp_chat_stream_end(fsdp_chat_stream *stream, fsdp_status status);

/* Run the conversation until the input ends or the user ends it. Each input line is a message, or
 * one of the commands /exit, /clear and /system TEXT. Collective. Only rank 0 reads the input and
 * shows the answers. */
FSDP_MUST_CHECK fsdp_status fsdp_chat_run(generate_run *run);
