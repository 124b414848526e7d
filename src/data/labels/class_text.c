/* See class_text.h. */
#include "src/data/labels/class_text.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/str.h"

/* ---- texts ---- */

/* Encode a text or a pair as a whole, with special tokens. `max_length` 0: no limit. */
static fsdp_status encode_texts(const fsdp_dataset_options *o, fsdp_data_text text,
                                fsdp_data_text pair, int max_length, fsdp_encoding *encoding)
{
    const fsdp_encode_options options = {.max_length = max_length};
    return fsdp_tokenizer_encode_pair(o->tokenizer, text.bytes, text.length, pair.bytes,
                                      pair.length, &options, encoding);
}

/* Set the segments of a row. A model with one segment has no use for them, and transformers'
 * tokenizers of some families do not return them. */
static fsdp_status set_segments(const fsdp_dataset_options *o, const fsdp_encoding *encoding,
                                fsdp_example *example)
{
    bool any = false;
    if (o->type_vocab_size <= 1 || !fsdp_tokenizer_returns_type_ids(o->tokenizer))
        return FSDP_OK;
    for (size_t i = 0; i < encoding->ids.len; i++) {
        any |= encoding->type_ids[i] != 0;
        if (encoding->type_ids[i] >= o->type_vocab_size)
            return fsdp_error(FSDP_ERR_FORMAT,
                              "%s: post_processor: token_type_ids are up to %d, but the model's "
                              "type_vocab_size is %" PRId64,
                              fsdp_tokenizer_path(o->tokenizer), (int)encoding->type_ids[i],
                              o->type_vocab_size);
    }
    if (!any) /* all segments are 0, for which the list stays empty */
        return FSDP_OK;
    return fsdp_token_list_set(&example->token_type_ids, encoding->type_ids, encoding->ids.len);
}

/* Set *cut to the number of ids that were cut off a row, which now has `kept` ids. For this, encode
 * the whole row. */
static fsdp_status count_cut(const fsdp_dataset_options *o, fsdp_data_text text,
                             fsdp_data_text pair, size_t kept, int64_t *cut)
{
    fsdp_encoding whole = {0};
    fsdp_status status = encode_texts(o, text, pair, 0, &whole);
    *cut = status == FSDP_OK ? (int64_t)(whole.ids.len - kept) : 0;
    fsdp_encoding_fini(&whole);
    return status;
}

fsdp_status fsdp_class_text_encode(const fsdp_dataset_options *o, fsdp_data_text text,
                                   fsdp_data_text pair, fsdp_example *example, int64_t *cut)
{
    const int limit = o->max_length < INT_MAX ? (int)o->max_length : 0;
    fsdp_encoding encoding = {0};
    int64_t lost = 0;
    fsdp_status status = encode_texts(o, text, pair, limit, &encoding);
    if (status == FSDP_OK)
        status = fsdp_token_list_set(&example->source, encoding.ids.ids, encoding.ids.len);
    if (status == FSDP_OK)
        status = set_segments(o, &encoding, example);
    if (status == FSDP_OK && cut && limit && encoding.ids.len == (size_t)limit)
        status = count_cut(o, text, pair, encoding.ids.len, &lost);
    fsdp_encoding_fini(&encoding);
    if (status == FSDP_OK && cut)
        *cut = lost;
    return status;
}

/* ---- classes ---- */

bool fsdp_label_is_number(const char *label, double *number)
{
    char *end;
    const double value = strtod(label, &end);
    if (end == label)
        return false;
    while (*end == ' ')
        end++;
    if (*end || !isfinite(value))
        return false;
    *number = value;
    return true;
}

bool fsdp_label_is_integer(const char *label, int64_t *number)
{
    double value;
    if (!fsdp_label_is_number(label, &value) || !(fabs(value) < 1e15) || value != floor(value))
        return false;
    *number = (int64_t)value;
    return true;
}

/* Return the class with this name, or -1. */
static int64_t class_with_name(const fsdp_dataset_options *o, const char *label)
{
    for (int64_t i = 0; o->class_names && i < o->num_classes; i++)
        if (o->class_names[i] && strcmp(o->class_names[i], label) == 0)
            return i;
    return -1;
}

static fsdp_status no_class(const fsdp_dataset_options *o, const char *label)
{
    char names[120] = "";
    fsdp_text text = {names, sizeof names};
    bool any = false;
    for (int64_t i = 0; o->class_names && i < o->num_classes; i++)
        if (o->class_names[i]) {
            fsdp_text_printf(&text, "%s\"%s\"", any ? ", " : "one of ", o->class_names[i]);
            any = true;
        }
    if (o->num_classes == INT32_MAX) /* the number of classes is not known */
        return fsdp_error(FSDP_ERR_FORMAT,
                          "label: expected an integer, 0 or more%s%s, found \"%.60s\"",
                          o->class_hint ? "; " : "", o->class_hint ? o->class_hint : "", label);
    return fsdp_error(FSDP_ERR_FORMAT,
                      "label: expected %s%san integer from 0 to %" PRId64 ": the model has %" PRId64
                      " classes%s%s, found \"%.60s\"",
                      names, any ? ", or " : "", o->num_classes - 1, o->num_classes,
                      o->class_hint ? "; " : "", o->class_hint ? o->class_hint : "", label);
}

fsdp_status fsdp_class_of_label(const fsdp_dataset_options *o, const char *label, int32_t *class)
{
    int64_t found = class_with_name(o, label);
    if (found < 0 && (!fsdp_label_is_integer(label, &found) || found >= o->num_classes))
        found = -1;
    if (found < 0)
        return no_class(o, label);
    *class = (int32_t)found;
    return FSDP_OK;
}
