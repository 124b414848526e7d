/* See noted_texts.h. */
#include "src/data/datasets/noted_texts.h"

#include <inttypes.h>

void fsdp_noted_text_begin(fsdp_noted_text *text, const fsdp_noted_texts *texts)
{
    text->special = fsdp_special_in_text_of_thread()->count;
    text->unknown = fsdp_unknown_in_next_row(texts->unknown.count, &texts->examples);
    text->outer = fsdp_unknown_in_text_watch(&text->unknown);
}

/* Count a text. Return true if it is the first one. */
static bool count_text(fsdp_counted_texts *texts, const char *path, int64_t at)
{
    if (texts->count++)
        return false;
    texts->path = path;
    texts->at = at;
    return true;
}

void fsdp_noted_text_end(fsdp_noted_text *text, fsdp_noted_texts *texts, const char *path,
                         int64_t at)
{
    const fsdp_special_in_text *special = fsdp_special_in_text_of_thread();
    fsdp_unknown_in_text_watch(text->outer);
    if (text->unknown.count) {
        count_text(&texts->unknown, path, at);
        fsdp_unknown_examples_add(&texts->examples, &text->unknown.examples);
    }
    if (special->count > text->special && count_text(&texts->special, path, at))
        texts->token = special->last;
}

void fsdp_noted_texts_print(const fsdp_noted_texts *texts, bool plain, fsdp_str *note)
{
    const char *place = plain ? "the document at line" : "row";
    const fsdp_counted_texts *special = &texts->special, *unknown = &texts->unknown;
    if (special->count)
        fsdp_str_printf(note,
                        "%s%s: special tokens are in %" PRId64
                        " of the texts, first '%s' in %s %" PRId64 "; " FSDP_SPECIAL_BECOMES_ID,
                        note->len ? "; " : "", special->path, special->count, texts->token, place,
                        special->at);
    if (unknown->count) {
        char example[FSDP_UNKNOWN_BYTES + 1] = "";
        fsdp_text text = {example, sizeof example};
        fsdp_unknown_examples_print(&texts->examples, &text);
        fsdp_str_printf(note,
                        "%s%s: %" PRId64 " of the texts " FSDP_UNKNOWN_SAYS " %sin %s %" PRId64
                        "; " FSDP_UNKNOWN_BECOMES,
                        note->len ? "; " : "", unknown->path, unknown->count, example, place,
                        unknown->at);
    }
}
