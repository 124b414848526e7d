/* See stop_strings.h. The last ids of a sequence are decoded twice, with and without the next id.
 * The next id completes a stop string if the string's last byte is in the part of the text in which
 * the two results differ. The number of decoded ids depends on the longest stop string, so the
 * check is not slower for a long sequence, unless most of its ids have no text. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/generate/stop_strings.h"

fsdp_status fsdp_stop_strings_init(fsdp_stop_strings *stop, const fsdp_tokenizer *tokenizer,
                                   const fsdp_rule_texts *texts)
{
    size_t longest = 0;
    if (texts->n_bytes && !tokenizer)
        return fsdp_error(FSDP_ERR_INVALID,
                          "stop_strings need a tokenizer: give --tokenizer, or no --stop-strings");
    for (const char *text = texts->bytes; text < texts->bytes + texts->n_bytes;
         text += strlen(text) + 1)
        longest = strlen(text) > longest ? strlen(text) : longest;
    /* Most tokens have at least one byte, so the last `longest` tokens usually have enough bytes
     * for any stop string. If they do not, fsdp_stop_strings_check() takes more tokens. The window
     * has one more token at its beginning, because some decoders change the first token of a
     * sequence. */
    *stop = (fsdp_stop_strings){.tokenizer = tokenizer, .texts = texts, .window = longest + 1};
    return FSDP_OK;
}

/* Return true if `text` occurs in `whole` and the last byte of this occurrence is at or after
 * position `changed`. */
static bool is_completed(const char *whole, size_t changed, const char *text)
{
    const size_t length = strlen(text);
    const char *at = whole + (changed >= length ? changed - length + 1 : 0);
    return strstr(at, text) != NULL;
}

/* Set *ends to true if the last of the ids completes a stop string. Set *enough to true if ids[1 ..
 * n) have at least the number of bytes of the longest stop string. Earlier ids then cannot change
 * the result. */
static fsdp_status check_window(const fsdp_stop_strings *stop, const int32_t *ids, size_t n,
                                bool *ends, bool *enough)
{
    char *first = NULL, *before = NULL, *after = NULL;
    fsdp_status status =
        fsdp_tokenizer_decode(stop->tokenizer, ids, n - 1, FSDP_DECODE_SKIP_UNKNOWN, &before);
    if (status == FSDP_OK)
        status = fsdp_tokenizer_decode(stop->tokenizer, ids, n, FSDP_DECODE_SKIP_UNKNOWN, &after);
    if (status == FSDP_OK)
        status = fsdp_tokenizer_decode(stop->tokenizer, ids, 1, FSDP_DECODE_SKIP_UNKNOWN, &first);
    if (status == FSDP_OK) {
        *enough = strlen(after) + 1 >= strlen(first) + stop->window;
        size_t same = 0;
        while (before[same] && before[same] == after[same])
            same++;
        for (const char *text = stop->texts->bytes;
             !*ends && text < stop->texts->bytes + stop->texts->n_bytes; text += strlen(text) + 1)
            *ends = is_completed(after, same, text);
    }
    fsdp_text_free(first);
    fsdp_text_free(before);
    fsdp_text_free(after);
    return status;
}

/* Like check_window(), for ids[n] followed by `next`. */
static fsdp_status check_last(const fsdp_stop_strings *stop, const int32_t *ids, size_t n,
                              int32_t next, bool *ends, bool *enough)
{
    int32_t *window = fsdp_calloc(n + 1, sizeof *window);
    if (!window)
        return FSDP_ERR_NOMEM;
    if (n)
        memcpy(window, ids, n * sizeof *window);
    window[n] = next;
    const fsdp_status status = check_window(stop, window, n + 1, ends, enough);
    fsdp_free(window);
    return status;
}

fsdp_status fsdp_stop_strings_check(const fsdp_stop_strings *stop, const int32_t *ids, size_t n,
                                    int32_t next, bool *ends)
{
    *ends = false;
    if (stop->texts->n_bytes == 0)
        return FSDP_OK;
    bool enough = false;
    fsdp_status status = FSDP_OK;
    for (size_t kept = stop->window; status == FSDP_OK && !*ends && !enough; kept *= 2) {
        kept = kept < n ? kept : n;
        status = check_last(stop, ids + n - kept, kept, next, ends, &enough);
        enough |= kept == n;
    }
    return status;
}
