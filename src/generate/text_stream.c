/* See text_stream.h. Each step decodes the new ids together with some ids before them, those of the
 * text that was passed to the caller last. So if the decoder treats the beginning of a text
 * differently, for example removes a space, only the first part is affected. The new text may still
 * change in two cases. If it ends with U+FFFD, the rest of a character may follow. If its last
 * token is a byte, such as <0x0A>, the next tokens may show that the bytes are not a valid
 * character, and then the decoder decodes all these bytes differently. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/generate/text_stream.h"

enum {
    /* Maximum number of ids to wait for the end of a character. A character has at most 4 tokens,
     * so a longer wait would be useless. It would also make each step slower. */
    MOST_WAITING = 256,
    /* Number of ids of the preceding text that are decoded together with the first new ids. */
    CONTEXT = 32
};

void fsdp_text_stream_init(fsdp_text_stream *stream, const fsdp_tokenizer *tokenizer)
{
    *stream = (fsdp_text_stream){.tokenizer = tokenizer};
}

fsdp_status fsdp_text_stream_follow(fsdp_text_stream *s, const int32_t *ids, size_t n)
{
    const size_t kept = n < CONTEXT ? n : CONTEXT;
    if (!kept)
        return FSDP_OK;
    if (!FSDP_GROW(s->ids.ids, s->ids.cap, kept))
        return FSDP_ERR_NOMEM;
    memcpy(s->ids.ids, ids + n - kept, kept * sizeof *ids);
    s->ids.len = s->given = kept;
    return FSDP_OK;
}

void fsdp_text_stream_fini(fsdp_text_stream *stream)
{
    fsdp_token_list_fini(&stream->ids);
}

static bool is_byte(const char *token)
{
    return token && strlen(token) == 6 && strncmp(token, "<0x", 3) == 0 && token[5] == '>';
}

/* Return the text of the last id that is not a special token, or NULL if there is no such id. */
static const char *last_token(const fsdp_text_stream *s)
{
    const char *token = NULL;
    for (size_t i = s->ids.len; i-- > s->begin && !token;)
        if (!fsdp_tokenizer_is_special(s->tokenizer, s->ids.ids[i]))
            token = fsdp_tokenizer_token_text(s->tokenizer, s->ids.ids[i]);
    return token;
}

static bool may_change(const fsdp_text_stream *s, const char *text, size_t bytes)
{
    if (s->ids.len - s->given > MOST_WAITING)
        return false;
    return (bytes >= 3 && memcmp(text + bytes - 3, "\xEF\xBF\xBD", 3) == 0) ||
           is_byte(last_token(s));
}

static fsdp_status decode(const fsdp_text_stream *s, size_t end, char **text)
{
    return fsdp_tokenizer_decode(s->tokenizer, s->ids.ids + s->begin, end - s->begin,
                                 FSDP_DECODE_SKIP_SPECIAL | FSDP_DECODE_SKIP_UNKNOWN, text);
}

/* The text of all ids consists of the text of ids [0, s->given) and new text. Call `part` with the
 * new text. If `all` is false, call `part` only if later ids cannot change this text. */
static fsdp_status give(fsdp_text_stream *s, bool all, fsdp_text_part_fn *part, void *arg)
{
    char *before = NULL, *text = NULL;
    fsdp_status status = decode(s, s->given, &before);
    if (status == FSDP_OK)
        status = decode(s, s->ids.len, &text);
    if (status == FSDP_OK) {
        const size_t bytes = strlen(text);
        size_t known = 0;
        while (before[known] && before[known] == text[known])
            known++;
        /* The new ids may have changed the text of the ids before them. Then the new text begins
         * with the first byte that changed, and is passed to `part` only if `all` is true. */
        const bool goes_on = bytes > known && (all || !before[known]);
        if (goes_on && (all || !may_change(s, text, bytes))) {
            status = part(arg, text + known, bytes - known);
            s->begin = s->given;
            s->given = s->ids.len;
        }
    }
    fsdp_text_free(before);
    fsdp_text_free(text);
    return status;
}

fsdp_status fsdp_text_stream_add(fsdp_text_stream *s, int32_t id, fsdp_text_part_fn *part,
                                 void *arg)
{
    if (!FSDP_GROW(s->ids.ids, s->ids.cap, s->ids.len + 1))
        return FSDP_ERR_NOMEM;
    s->ids.ids[s->ids.len++] = id;
    return give(s, false, part, arg);
}

fsdp_status fsdp_text_stream_end(fsdp_text_stream *s, fsdp_text_part_fn *part, void *arg)
{
    return s->given < s->ids.len ? give(s, true, part, arg) : FSDP_OK;
}
