/* See jsonl_keys.h. */
#include "src/data/json/jsonl_keys.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/str.h"

/* Keys that are meant to change the loss. If a row has such a key but rows of its kind do not use
 * the key, the row is refused, unless the value of the key has no effect. A value has no effect if
 * it is the number `neutral`, or an array that contains only this number. If `neutral` is NAN,
 * every number has an effect. `what` is the end of the error message. It says which values are
 * accepted, and why. */
static const struct {
    const char *key, *what;
    double neutral;
} refused[] = {
    {"attention_mask", "ones, or none: a mask goes with input_ids", 1},
    {"position_ids", "none: such rows have no positions", (double)NAN},
    {"labels", "none: such rows have no labels of their own", (double)NAN},
    {"token_type_ids", "zeros, or none: the model has no token types", 0},
    {"decoder_input_ids", "none: the model has no decoder of its own", (double)NAN},
    {"decoder_attention_mask", "none: the model has no decoder of its own", (double)NAN},
    {"inputs_embeds", "none: models take input_ids", (double)NAN},
    {"decoder_inputs_embeds", "none: models take input_ids", (double)NAN},
    {"encoder_outputs", "none: models take input_ids", (double)NAN},
    {"past_key_values", "none: models take input_ids", (double)NAN},
    {"head_mask", "ones, or none: heads are not masked", 1},
    {"decoder_head_mask", "ones, or none: heads are not masked", 1},
    {"cross_attn_head_mask", "ones, or none: heads are not masked", 1},
    {"weight", "1, or none: losses have no weights", 1},
    {"weights", "1, or none: losses have no weights", 1},
    {"sample_weight", "1, or none: losses have no weights", 1},
    {"sample_weights", "1, or none: losses have no weights", 1},
    {"loss_weight", "1, or none: losses have no weights", 1},
    {"loss_weights", "1, or none: losses have no weights", 1},
    {"label_weights", "1, or none: losses have no weights", 1},
    {"token_weights", "1, or none: losses have no weights", 1},
    {"loss_mask", "ones, or none: labels of -100 have no loss", 1},
    {"labels_mask", "ones, or none: labels of -100 have no loss", 1},
    {"completion_mask", "ones, or none: labels of -100 have no loss", 1},
    {"assistant_masks", "ones, or none: labels of -100 have no loss", 1},
};

static bool is_number(fsdp_json_node value)
{
    const fsdp_json_kind kind = fsdp_json_kind_of(value);
    return kind == FSDP_JSON_INT || kind == FSDP_JSON_REAL || kind == FSDP_JSON_BOOL;
}

static bool equals_number(fsdp_json_node value, double number)
{
    double found;
    bool on;
    if (fsdp_json_kind_of(value) == FSDP_JSON_BOOL)
        return fsdp_json_get_bool(value, NULL, &on) == FSDP_OK && (double)on == number;
    return fsdp_json_get_f64(value, NULL, &found) == FSDP_OK && found == number;
}

/* Return true if `value` is `number`, or if it is an array, possibly a nested one, that contains
 * nothing but `number`. */
static bool is_all(fsdp_json_node value, double number)
{
    if (fsdp_json_kind_of(value) != FSDP_JSON_ARRAY)
        return is_number(value) && equals_number(value, number);
    for (size_t i = 0; i < fsdp_json_len(value); i++)
        if (!is_all(fsdp_json_at(value, i), number))
            return false;
    return true;
}

/* Return true if `value`, the value of `key`, can be an argument of a model. An array or a number
 * can be an argument; text cannot. There is one exception: a number under "labels" is not an
 * argument but a class, as in {"text": ..., "labels": 1}. */
static bool is_argument(const char *key, fsdp_json_node value)
{
    if (fsdp_json_kind_of(value) == FSDP_JSON_ARRAY)
        return true;
    return is_number(value) && strcmp(key, "labels") != 0;
}

static fsdp_status check_refused(fsdp_json_node row, fsdp_json_node value)
{
    for (size_t i = 0; i < FSDP_LENGTH(refused); i++)
        if (strcmp(value.key, refused[i].key) == 0 && is_argument(value.key, value) &&
            !is_all(value, refused[i].neutral))
            return fsdp_json_mismatch(row, value.key, "%s", refused[i].what);
    return FSDP_OK;
}

static bool equals(const char *known, const char *name, size_t bytes)
{
    return strncmp(known, name, bytes) == 0 && known[bytes] == 0;
}

bool fsdp_key_may_be_refused(const char *name, size_t bytes)
{
    for (size_t i = 0; i < FSDP_LENGTH(refused); i++)
        if (equals(refused[i].key, name, bytes))
            return true;
    return false;
}

static bool is_collected(const fsdp_unused_keys *unused, const char *name, size_t bytes)
{
    for (size_t i = 0; i < unused->len; i++)
        if (equals(unused->items[i].name, name, bytes))
            return true;
    return false;
}

fsdp_status fsdp_collect_unused_name(const char *name, size_t bytes, int64_t line,
                                     fsdp_unused_keys *unused)
{
    if (is_collected(unused, name, bytes))
        return FSDP_OK;
    unused->more |= unused->len == FSDP_MAX_UNUSED_KEYS;
    if (unused->more)
        return FSDP_OK;
    char *copy = fsdp_strndup(name, bytes);
    if (!copy)
        return FSDP_ERR_NOMEM;
    unused->items[unused->len].name = copy;
    unused->items[unused->len++].line = line;
    return FSDP_OK;
}

fsdp_status fsdp_collect_unused_key(const char *key, int64_t line, fsdp_unused_keys *unused)
{
    return fsdp_collect_unused_name(key, strlen(key), line, unused);
}

fsdp_status fsdp_unused_key(fsdp_json_node row, fsdp_json_node value, int64_t line,
                            fsdp_unused_keys *unused)
{
    FSDP_TRY(check_refused(row, value));
    return fsdp_collect_unused_key(value.key, line, unused);
}

/* ---- T5's decoder keys, whose values follow from the labels ---- */

/* Return the number of labels up to and including the last one that has a loss. Labels after that
 * one do not change the loss. */
static size_t length_with_loss(const fsdp_token_list *labels)
{
    size_t n = labels->len;
    while (n && labels->ids[n - 1] == FSDP_IGNORE_INDEX)
        n--;
    return n;
}

static fsdp_status check_inputs(fsdp_json_node row, const fsdp_token_list *labels, int32_t start_id,
                                const int64_t *inputs)
{
    const size_t n = length_with_loss(labels);
    for (size_t i = 0; i < n; i++) {
        const int32_t before = i ? labels->ids[i - 1] : start_id;
        const int64_t expected = before == FSDP_IGNORE_INDEX ? 0 : before;
        if (inputs[i] != expected)
            return fsdp_json_mismatch(row, "decoder_input_ids",
                                      "the labels behind the start id, or none: they are made of "
                                      "the labels (entry %zu is %" PRId64 ", not %" PRId64 ")",
                                      i, inputs[i], expected);
    }
    return FSDP_OK;
}

static fsdp_status check_mask(fsdp_json_node row, const fsdp_token_list *labels,
                              const int64_t *mask)
{
    const size_t n = length_with_loss(labels);
    for (size_t i = 0; i < n; i++)
        if (mask[i] == 0)
            return fsdp_json_mismatch(row, "decoder_attention_mask",
                                      "ones up to the last label that has a loss (entry %zu is 0)",
                                      i);
    return FSDP_OK;
}

/* Get the array `key`, which must have one integer for each label. *items is NULL if the key is
 * missing. */
static fsdp_status get_like_labels(fsdp_json_node row, const char *key,
                                   const fsdp_token_list *labels, int64_t **items)
{
    size_t count = 0;
    *items = NULL;
    if (!fsdp_json_has(row, key))
        return FSDP_OK;
    FSDP_TRY(fsdp_json_get_i64s(row, key, INT32_MIN, INT32_MAX, items, &count));
    if (count == labels->len)
        return FSDP_OK;
    fsdp_free(*items);
    *items = NULL;
    return fsdp_json_mismatch(row, key, "%zu entries, as in labels", labels->len);
}

fsdp_status fsdp_check_decoder_keys(fsdp_json_node row, const fsdp_token_list *labels,
                                    int32_t start_id)
{
    int64_t *items;
    FSDP_TRY(get_like_labels(row, "decoder_input_ids", labels, &items));
    fsdp_status status = items ? check_inputs(row, labels, start_id, items) : FSDP_OK;
    fsdp_free(items);
    FSDP_TRY(status);
    FSDP_TRY(get_like_labels(row, "decoder_attention_mask", labels, &items));
    status = items ? check_mask(row, labels, items) : FSDP_OK;
    fsdp_free(items);
    return status;
}

/* ---- the note about unused keys ---- */

fsdp_status fsdp_unused_keys_note(const fsdp_unused_keys *unused, const char *path, char **note)
{
    fsdp_str text = {0};
    *note = NULL;
    if (unused->len == 0)
        return FSDP_OK;
    fsdp_str_printf(&text, "%s: not used:", path);
    for (size_t i = 0; i < unused->len; i++) {
        fsdp_str_printf(&text, "%s '%.40s'", i ? "," : "", unused->items[i].name);
        if (unused->items[i].line)
            fsdp_str_printf(&text, " (line %" PRId64 ")", unused->items[i].line);
    }
    fsdp_str_printf(&text, "%s", unused->more ? " and others" : "");
    *note = fsdp_str_take(&text);
    return *note ? FSDP_OK : FSDP_ERR_NOMEM;
}

fsdp_status fsdp_unused_columns_note(const fsdp_unused_keys *unused, const char *left_out,
                                     const char *path, char **note)
{
    fsdp_str text = {0};
    *note = NULL;
    if (unused->len == 0 && !left_out)
        return FSDP_OK;
    fsdp_str_printf(&text, "%s: not used: ", path);
    for (size_t i = 0; i < unused->len; i++)
        fsdp_str_printf(&text, "%s'%.40s'", i ? ", " : "", unused->items[i].name);
    if (left_out)
        fsdp_str_printf(&text, "%s%s", unused->len ? ", " : "", left_out);
    fsdp_str_printf(&text, "%s", unused->more ? " and others" : "");
    *note = fsdp_str_take(&text);
    return *note ? FSDP_OK : FSDP_ERR_NOMEM;
}

void fsdp_unused_keys_fini(fsdp_unused_keys *unused)
{
    for (size_t i = 0; i < unused->len; i++)
        fsdp_free(unused->items[i].name);
    *unused = (fsdp_unused_keys){0};
}
