/* See class_text.h. */
#include "src/data/class_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/str.h"

/* ---- texts ---- */

/* Cut two lists to `limit` ids together, as transformers' longest_first does: one id at a time off
 * the longer list, off the second one if both are equally long. The last id of a list, the end of
 * its text, stays. */
static int64_t cut_longest(fsdp_token_list *a, fsdp_token_list *b, int64_t limit)
{
    int64_t cut = 0;
    while ((int64_t)(a->len + b->len) > limit && (a->len > 1 || b->len > 1)) {
        fsdp_token_list *longer = a->len > b->len ? a : b;
        longer->ids[longer->len - 2] = longer->ids[longer->len - 1];
        longer->len--;
        cut++;
    }
    return cut;
}

static fsdp_status append_with_type(const fsdp_token_list *ids, int32_t type, bool has_types,
                                    fsdp_example *example)
{
    fsdp_token_list *source = &example->source, *types = &example->token_type_ids;
    if (!FSDP_GROW(source->ids, source->cap, source->len + ids->len) ||
        !FSDP_GROW(types->ids, types->cap, types->len + ids->len))
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < ids->len; i++) {
        source->ids[source->len++] = ids->ids[i];
        if (has_types)
            types->ids[types->len++] = type;
    }
    return FSDP_OK;
}

fsdp_status fsdp_class_text_encode(const fsdp_dataset_options *options, const char *text,
                                   const char *pair, fsdp_example *example, int64_t *cut)
{
    fsdp_token_list first = {0}, second = {0};
    const bool has_types = pair && options->type_vocab_size > 1;
    fsdp_status status = fsdp_tokenizer_encode(options->tokenizer, text, strlen(text), 0, &first);
    if (status == FSDP_OK && pair)
        status = fsdp_tokenizer_encode(options->tokenizer, pair, strlen(pair), 0, &second);
    *cut = status == FSDP_OK ? cut_longest(&first, &second, options->max_length) : 0;
    if (status == FSDP_OK)
        status = append_with_type(&first, 0, has_types, example);
    if (status == FSDP_OK)
        status = append_with_type(&second, 1, has_types, example);
    fsdp_token_list_fini(&first);
    fsdp_token_list_fini(&second);
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
