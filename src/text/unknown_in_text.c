/* See unknown_in_text.h. */
#include "src/text/unknown_in_text.h"

#include <stdio.h>
#include <string.h>

#include "src/text/chars/utf8.h"

enum {
    /* Examples are searched in the first FIRST_ROWS rows that have unknown tokens, and in a few of
     * the other rows. The texts of the rows that are searched are encoded twice. */
    FIRST_ROWS = 256,
    OTHER_ROWS = 16,         /* every 16th of the other rows is searched */
    SEARCHED_CHARACTERS = 64 /* examples are searched only in the first characters of a text */
};

static _Thread_local fsdp_unknown_in_text *of_thread;

fsdp_unknown_in_text *fsdp_unknown_in_text_watch(fsdp_unknown_in_text *found)
{
    fsdp_unknown_in_text *before = of_thread;
    of_thread = found;
    return before;
}

fsdp_unknown_in_text *fsdp_unknown_in_text_watched(void)
{
    return of_thread;
}

fsdp_unknown_in_text fsdp_unknown_in_next_row(int64_t rows, const fsdp_unknown_examples *known)
{
    return (fsdp_unknown_in_text){.without_examples =
                                      (rows >= FIRST_ROWS && rows % OTHER_ROWS != 0) ||
                                      (known && fsdp_unknown_examples_full(known))};
}

/* ---- lists of examples ---- */

bool fsdp_unknown_examples_full(const fsdp_unknown_examples *examples)
{
    return *examples->items[FSDP_UNKNOWN_EXAMPLES - 1] != 0;
}

static void add_shown(fsdp_unknown_examples *examples, const char *shown)
{
    for (int i = 0; i < FSDP_UNKNOWN_EXAMPLES; i++) {
        if (strcmp(examples->items[i], shown) == 0)
            return;
        if (!*examples->items[i]) {
            snprintf(examples->items[i], FSDP_UNKNOWN_BYTES, "%s", shown);
            return;
        }
    }
}

/* Return true if a terminal shows nothing for the character, or shows it only together with another
 * character. Such characters are controls, formats, combining marks, variation selectors and
 * characters for private use. */
static bool is_invisible(uint32_t c)
{
    static const uint32_t ranges[][2] = {{0, 0x20},
                                         {0x7f, 0xa0},
                                         {0xad, 0xad},
                                         {0x300, 0x36f},
                                         {0x2000, 0x200f},
                                         {0x2028, 0x202f},
                                         {0x205f, 0x206f},
                                         {0x3000, 0x3000},
                                         {0xe000, 0xf8ff},
                                         {0xfe00, 0xfe0f},
                                         {0xfeff, 0xfeff},
                                         {0xfff0, 0xfffd},
                                         {0xe0000, UINT32_MAX}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1])
            return true;
    return false;
}

/* Return the number of bytes of the first characters of well-formed text that fit in `room`. */
static size_t fitting(const char *text, size_t length, size_t room)
{
    size_t bytes = 0;
    while (bytes < length && bytes + fsdp_utf8_length(text[bytes]) <= room)
        bytes += fsdp_utf8_length(text[bytes]);
    return bytes;
}

/* Add the text of an unknown character or word to the examples. */
static void add_example(fsdp_unknown_examples *examples, const char *text, size_t length)
{
    char shown[FSDP_UNKNOWN_BYTES];
    const size_t room = sizeof shown - sizeof "''";
    size_t bytes;
    if (fsdp_utf8_valid_length(text, length) < length || length == 0)
        return; /* a part of a character, in a model that works on bytes */
    if (is_invisible(fsdp_utf8_decode(text, &bytes))) {
        snprintf(shown, sizeof shown, "U+%04X", (unsigned)fsdp_utf8_decode(text, &bytes));
    } else {
        const size_t kept = length <= room ? length : fitting(text, length, room - 3);
        snprintf(shown, sizeof shown, "'%.*s%s'", (int)kept, text, kept < length ? "..." : "");
    }
    for (char *p = shown; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    add_shown(examples, shown);
}

void fsdp_unknown_examples_add(fsdp_unknown_examples *examples, const fsdp_unknown_examples *more)
{
    for (int i = 0; i < FSDP_UNKNOWN_EXAMPLES && *more->items[i]; i++)
        add_shown(examples, more->items[i]);
}

void fsdp_unknown_examples_print(const fsdp_unknown_examples *examples, fsdp_text *text)
{
    if (*examples->items[0])
        fsdp_text_printf(text, "%s ", examples->items[0]);
}

void fsdp_unknown_in_text_add(fsdp_unknown_in_text *found, const fsdp_unknown_in_text *more)
{
    found->count += more->count;
    found->in_source |= more->in_source;
    found->in_target |= more->in_target;
    fsdp_unknown_examples_add(&found->examples, &more->examples);
}

/* ---- pieces ---- */

/* Set *unknown to true if the tokens of `text` contain the unknown token. `spans` is scratch
 * memory. */
static fsdp_status is_unknown(const fsdp_token_model *model, fsdp_token_work *work,
                              const char *text, size_t length, fsdp_token_spans *spans,
                              bool *unknown)
{
    const int32_t unk = model->ops->unk_id(model);
    spans->len = 0;
    *unknown = false;
    FSDP_TRY(model->ops->encode(model, work, text, length, spans));
    for (size_t i = 0; i < spans->len; i++)
        *unknown |= spans->items[i].id == unk;
    return FSDP_OK;
}

/* Add examples of what is unknown in `text`, which became one unknown token: its unknown
 * characters or, if the tokenizer knows each of them, the whole text. */
static fsdp_status add_examples(const fsdp_token_model *model, fsdp_token_work *work,
                                const char *text, size_t length, fsdp_token_spans *spans,
                                fsdp_unknown_examples *examples)
{
    const bool is_words = strcmp(model->ops->type, "WordLevel") == 0;
    bool any = false;
    if (fsdp_utf8_valid_length(text, length) < length)
        return FSDP_OK; /* a part of a character, in a model that works on bytes */
    size_t at = 0, bytes;
    for (int n = 0; at < length && !is_words && n < SEARCHED_CHARACTERS &&
                    !fsdp_unknown_examples_full(examples);
         n++, at += bytes) {
        bool unknown;
        bytes = fsdp_utf8_length(text[at]);
        FSDP_TRY(is_unknown(model, work, text + at, bytes, spans, &unknown));
        if (unknown)
            add_example(examples, text + at, bytes);
        any |= unknown;
    }
    if (!any)
        add_example(examples, text, length);
    return FSDP_OK;
}

fsdp_status fsdp_unknown_in_piece(const fsdp_token_model *model, fsdp_token_work *work,
                                  const char *piece, size_t length, fsdp_unknown_examples *examples,
                                  size_t *tokens)
{
    fsdp_token_spans spans = {0}, scratch = {0};
    const int32_t unk = model->ops->unk_id(model);
    fsdp_status status = model->ops->encode(model, work, piece, length, &spans);
    for (size_t i = 0; status == FSDP_OK && i < spans.len; i++) {
        const fsdp_token_span *s = &spans.items[i];
        if (s->id == unk && s->begin < s->end && s->end <= length)
            status =
                add_examples(model, work, piece + s->begin, s->end - s->begin, &scratch, examples);
    }
    *tokens = spans.len;
    fsdp_token_spans_fini(&spans);
    fsdp_token_spans_fini(&scratch);
    return status;
}
