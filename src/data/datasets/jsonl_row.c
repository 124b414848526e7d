/* Converts a JSON line to an example. Ids whose attention_mask is 0 are removed. Unless the task is
 * SEQ2SEQ, ids beyond max_length are also removed. Some other arrays of the row, such as
 * position_ids, have one entry for each id. When an id is removed, its entries are removed from
 * those arrays as well. */
#include "src/data/datasets/jsonl_row.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/str.h"
#include "src/batch/batch.h"
#include "src/data/datasets/dataset.h"
#include "src/data/labels/class_text.h"
#include "src/data/rows/causal_text.h"
#include "src/data/rows/chat_text.h"
#include "src/data/rows/missing_column.h"
#include "src/data/rows/rows_form.h"

/* The row that is being read. Its input_ids have `count` entries, but only entries [first, end) are
 * used. */
typedef struct reading {
    fsdp_json_node object;
    const fsdp_dataset_options *options;
    int64_t count, first, end;
    const char *const *keys;   /* keys that this kind of row uses; the last item is NULL */
    const char *prompt, *text; /* keys of the texts; NULL if the row has no such text */
    bool is_chat;              /* the row is a conversation */
    int64_t cut;               /* ids beyond max_length */
    fsdp_str *whole;           /* see fsdp_jsonl_rows */
} reading;

/* ---- arrays ---- */

static fsdp_status set_narrow(fsdp_token_list *list, const int64_t *items, size_t count)
{
    if (!FSDP_GROW(list->ids, list->cap, count))
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < count; i++)
        list->ids[i] = (int32_t)items[i];
    list->len = count;
    return FSDP_OK;
}

/* Get the array `key`, which must have one integer for each of input_ids. The caller frees *items,
 * also after a failure. If the row does not have the array, *items is not changed. */
static fsdp_status get_beside(const reading *r, const char *key, int64_t min, int64_t max,
                              int64_t **items)
{
    if (!fsdp_json_has(r->object, key))
        return FSDP_OK;
    size_t found = 0;
    FSDP_TRY(fsdp_json_get_i64s(r->object, key, min, max, items, &found));
    if ((int64_t)found != r->count)
        return fsdp_json_mismatch(r->object, key, "%" PRId64 " entries, as in input_ids", r->count);
    return FSDP_OK;
}

/* Like get_beside(), but store only entries [first, end) of the array, in *list. If the row does
 * not have the array, *list is not changed. */
static fsdp_status take_beside(const reading *r, const char *key, int64_t min, int64_t max,
                               fsdp_token_list *list)
{
    int64_t *items = NULL;
    fsdp_status status = get_beside(r, key, min, max, &items);
    if (status == FSDP_OK && items)
        status = set_narrow(list, items + r->first, (size_t)(r->end - r->first));
    fsdp_free(items);
    return status;
}

static fsdp_status check_labels(const reading *r, const char *key, const fsdp_token_list *labels,
                                int64_t first)
{
    for (size_t i = 0; i < labels->len; i++)
        if (labels->ids[i] < 0 && labels->ids[i] != FSDP_IGNORE_INDEX)
            return fsdp_json_mismatch(r->object, key,
                                      "ids or %d for no loss (entry %" PRId64 " is %d)",
                                      FSDP_IGNORE_INDEX, first + (int64_t)i, (int)labels->ids[i]);
    return FSDP_OK;
}

/* ---- input_ids ---- */

static fsdp_status read_span(reading *r)
{
    int64_t *mask = NULL;
    r->first = 0;
    r->end = r->count;
    fsdp_status status = get_beside(r, "attention_mask", 0, INT32_MAX, &mask);
    if (status == FSDP_OK && mask)
        status = fsdp_mask_span(mask, r->count, &r->first, &r->end);
    if (status == FSDP_ERR_INVALID)
        /* The caller's arguments are right: the mask comes from the file. */
        status = FSDP_ERR_FORMAT;
    fsdp_free(mask);
    if (status != FSDP_OK || r->options->task == FSDP_TASK_SEQ2SEQ)
        return status;
    if (r->end - r->first > r->options->max_length) {
        r->cut = r->end - r->first - r->options->max_length;
        r->end = r->first + r->options->max_length;
    }
    return FSDP_OK;
}

static fsdp_status read_source(reading *r, fsdp_token_list *source)
{
    int64_t *ids = NULL;
    size_t count = 0;
    fsdp_status status =
        fsdp_json_get_i64s(r->object, "input_ids", 0, r->options->vocab_size - 1, &ids, &count);
    if (status == FSDP_OK && count == 0)
        status = fsdp_json_mismatch(r->object, "input_ids", "at least one id");
    r->count = (int64_t)count;
    if (status == FSDP_OK)
        status = read_span(r);
    if (status == FSDP_OK)
        status = set_narrow(source, ids + r->first, (size_t)(r->end - r->first));
    fsdp_free(ids);
    return status;
}

/* Check position_ids, which must count up by one. For SEQ2SEQ, they may begin anywhere, because T5
 * uses only distances. For other tasks, they begin at 0. For CAUSAL_LM, they begin again at 0 with
 * each document in the row. */
static fsdp_status check_positions(const reading *r, const fsdp_token_list *positions)
{
    const fsdp_task task = r->options->task;
    for (size_t i = 0; i < positions->len; i++) {
        int32_t at = positions->ids[i];
        bool begins =
            i == 0 ? at == 0 || task == FSDP_TASK_SEQ2SEQ : at == 0 && task == FSDP_TASK_CAUSAL_LM;
        if (begins || (i > 0 && at == positions->ids[i - 1] + 1))
            continue;
        return fsdp_json_mismatch(r->object, "position_ids",
                                  "positions that count up by one%s (entry %" PRId64 " does not)",
                                  task == FSDP_TASK_SEQ2SEQ     ? ""
                                  : task == FSDP_TASK_CAUSAL_LM ? " from the 0 of each document"
                                                                : " from 0",
                                  r->first + (int64_t)i);
    }
    return FSDP_OK;
}

/* ---- rows of each task ---- */

static fsdp_status read_seq2seq(reading *r, fsdp_example *example)
{
    static const char *const keys[] = {"input_ids",
                                       "labels",
                                       "attention_mask",
                                       "position_ids",
                                       "decoder_input_ids",
                                       "decoder_attention_mask",
                                       NULL};
    int64_t *labels = NULL;
    size_t count = 0;
    if (!fsdp_json_has(r->object, "input_ids"))
        return fsdp_json_mismatch(r->object, NULL, "input_ids and labels, or texts in all rows");
    r->keys = keys;
    FSDP_TRY(read_source(r, &example->source));
    FSDP_TRY(take_beside(r, "position_ids", 0, INT32_MAX, &example->position_ids));
    FSDP_TRY(check_positions(r, &example->position_ids));
    example->position_ids.len = 0;
    fsdp_status status = fsdp_json_get_i64s(r->object, "labels", FSDP_IGNORE_INDEX,
                                            r->options->vocab_size - 1, &labels, &count);
    if (status == FSDP_OK)
        status = set_narrow(&example->labels, labels, count);
    fsdp_free(labels);
    FSDP_TRY(status);
    FSDP_TRY(check_labels(r, "labels", &example->labels, 0));
    return fsdp_check_decoder_keys(r->object, &example->labels, r->options->decoder_start_id);
}

static fsdp_status ignore_prompt(const reading *r, fsdp_example *example)
{
    int64_t prompt = 0;
    FSDP_TRY(fsdp_json_opt_i64(r->object, "prompt_length", 0, r->count, 0, &prompt));
    if (prompt && example->labels.len == 0)
        FSDP_TRY(fsdp_token_list_set(&example->labels, example->source.ids, example->source.len));
    /* prompt_length includes the padding on the left. This padding, r->first ids, has been removed
     * from the row. */
    prompt -= r->first;
    for (int64_t i = 0; i < prompt && i < (int64_t)example->labels.len; i++)
        example->labels.ids[i] = FSDP_IGNORE_INDEX;
    return FSDP_OK;
}

static fsdp_status read_causal_ids(reading *r, fsdp_example *example)
{
    static const char *const keys[] = {"input_ids",    "labels",        "attention_mask",
                                       "position_ids", "prompt_length", NULL};
    r->keys = keys;
    FSDP_TRY(read_source(r, &example->source));
    FSDP_TRY(
        take_beside(r, "labels", FSDP_IGNORE_INDEX, r->options->vocab_size - 1, &example->labels));
    FSDP_TRY(check_labels(r, "labels", &example->labels, r->first));
    FSDP_TRY(take_beside(r, "position_ids", 0, INT32_MAX, &example->position_ids));
    FSDP_TRY(check_positions(r, &example->position_ids));
    return ignore_prompt(r, example);
}

/* Append the ids of `key` to the source, and one label per id to the labels. If `loss` is false,
 * the ids have no loss. Ids beyond max_length are left out. */
static fsdp_status append_ids(reading *r, const char *key, bool loss, fsdp_example *example)
{
    fsdp_token_list *source = &example->source, *labels = &example->labels;
    int64_t *ids = NULL;
    size_t count = 0;
    fsdp_status status =
        fsdp_json_get_i64s(r->object, key, 0, r->options->vocab_size - 1, &ids, &count);
    if (status == FSDP_OK && (!FSDP_GROW(source->ids, source->cap, source->len + count) ||
                              !FSDP_GROW(labels->ids, labels->cap, labels->len + count)))
        status = FSDP_ERR_NOMEM;
    for (size_t i = 0; status == FSDP_OK && i < count; i++) {
        if ((int64_t)source->len == r->options->max_length) {
            r->cut += (int64_t)(count - i);
            break;
        }
        source->ids[source->len++] = (int32_t)ids[i];
        labels->ids[labels->len++] = loss ? (int32_t)ids[i] : FSDP_IGNORE_INDEX;
    }
    fsdp_free(ids);
    return status;
}

static fsdp_status read_prompt_and_completion(reading *r, fsdp_example *example)
{
    static const char *const keys[] = {"prompt_ids", "completion_ids", NULL};
    r->keys = keys;
    FSDP_TRY(append_ids(r, "prompt_ids", false, example));
    FSDP_TRY(append_ids(r, "completion_ids", true, example));
    if (example->source.len == 0)
        return fsdp_json_mismatch(r->object, "completion_ids", "at least one id");
    return FSDP_OK;
}

/* Get the keys that have the prompt and the text of the row. *prompt is NULL if there is no
 * prompt. */
static void text_keys(const reading *r, const char **prompt, const char **text)
{
    const fsdp_dataset_options *o = r->options;
    *prompt = o->target_column ? o->source_column : NULL;
    *text = o->target_column ? o->target_column : o->source_column;
    if (*text)
        return;
    bool both = fsdp_json_has(r->object, "prompt") && fsdp_json_has(r->object, "completion");
    *prompt = both ? "prompt" : NULL;
    *text = both ? "completion" : "text";
}

/* Return the error for a row without a text. It lists the keys of the row, since one of them may be
 * the text. */
static fsdp_status no_text(const reading *r, const char *wanted)
{
    char keys[160] = "";
    fsdp_text text = {keys, sizeof keys};
    for (fsdp_json_node v = fsdp_json_first(r->object); v.value; v = fsdp_json_next(v))
        fsdp_text_printf(&text, "%s%.40s", v.value == fsdp_json_first(r->object).value ? "" : ", ",
                         v.key);
    return fsdp_error(FSDP_ERR_FORMAT,
                      "row: expected input_ids, prompt_ids and completion_ids, messages, or the "
                      "text \"%s\"; found %s%s (--text-column names the text, or with "
                      "--target-column the prompt and its completion)",
                      wanted, *keys ? "the keys " : "no keys", keys);
}

static bool has_key(const void *row, const char *name)
{
    const fsdp_json_node *object = row;
    return fsdp_json_find(*object, name).value != NULL;
}

static fsdp_status read_text(reading *r, fsdp_example *example)
{
    const char *prompt_key, *text_key, *prompt = "";
    const char *prefix = r->options->source_prefix;
    fsdp_data_text text;
    size_t prompt_length = 0;
    fsdp_str full = {0};
    const char *unknown = fsdp_first_unknown_column(r->options, has_key, &r->object);
    if (unknown)
        return fsdp_missing_key(r->options, unknown, true, r->object, false);
    text_keys(r, &prompt_key, &text_key);
    if (!fsdp_json_has(r->object, text_key))
        return no_text(r, text_key);
    if (prompt_key)
        FSDP_TRY(fsdp_json_get_strn(r->object, prompt_key, &prompt, &prompt_length));
    FSDP_TRY(fsdp_json_get_strn(r->object, text_key, &text.bytes, &text.length));
    r->prompt = prompt_key;
    r->text = text_key;
    FSDP_TRY(fsdp_check_tokenizer(fsdp_json_name(r->object.doc), "a text", r->options));
    fsdp_str_append(&full, prefix, strlen(prefix));
    fsdp_str_append(&full, prompt, prompt_length);
    const fsdp_data_text before = {full.data, full.len};
    fsdp_status status = full.failed
                             ? fsdp_error_nomem()
                             : fsdp_causal_text_encode(r->options, before, text, example, &r->cut);
    if (r->whole && status == FSDP_OK) {
        fsdp_str_append(r->whole, before.bytes ? before.bytes : "", before.length);
        fsdp_str_append(r->whole, text.bytes, text.length);
    }
    fsdp_str_fini(&full);
    return status;
}

/* Read ids of a masked language model. */
static fsdp_status read_masked_ids(reading *r, fsdp_example *example)
{
    static const char *const keys[] = {"input_ids",    "labels",         "attention_mask",
                                       "position_ids", "token_type_ids", NULL};
    FSDP_TRY(read_causal_ids(r, example));
    r->keys = keys;
    return take_beside(r, "token_type_ids", 0, r->options->type_vocab_size - 1,
                       &example->token_type_ids);
}

static fsdp_status read_masked(reading *r, fsdp_example *example)
{
    static const char *const prompts[] = {"prompt_length", "prompt_ids", "completion_ids"};
    for (size_t i = 0; i < FSDP_LENGTH(prompts); i++)
        if (fsdp_json_has(r->object, prompts[i]))
            return fsdp_json_mismatch(r->object, prompts[i],
                                      "none: masked language models have no prompts");
    return fsdp_json_has(r->object, "input_ids") ? read_masked_ids(r, example)
                                                 : read_text(r, example);
}

static fsdp_status read_chat(reading *r, fsdp_example *example)
{
    r->is_chat = true;
    r->keys = fsdp_chat_row_keys(r->object);
    return fsdp_chat_text_encode(r->options, r->object, example, &r->cut, r->whole);
}

static fsdp_status read_causal(reading *r, fsdp_example *example)
{
    if (r->options->masking)
        return read_masked(r, example);
    if (fsdp_json_has(r->object, "input_ids"))
        return read_causal_ids(r, example);
    if (fsdp_json_has(r->object, "prompt_ids") || fsdp_json_has(r->object, "completion_ids"))
        return read_prompt_and_completion(r, example);
    if (!r->options->source_column && fsdp_is_chat_row(r->object))
        return read_chat(r, example);
    return read_text(r, example);
}

/* Write the names of the classes to `text`, as many as fit. */
static void list_names(const fsdp_dataset_options *o, char *text, size_t size)
{
    size_t at = 0;
    for (int64_t i = 0; i < o->num_classes && at < size; i++)
        if (o->class_names[i])
            at += (size_t)snprintf(text + at, size - at, "%s\"%s\"", at ? ", " : "",
                                   o->class_names[i]);
    if (at >= size)
        snprintf(text + size - 4, 4, "...");
}

static fsdp_status refuse_name(const reading *r, const char *key)
{
    const fsdp_dataset_options *o = r->options;
    char names[120] = "";
    if (o->class_names)
        list_names(o, names, sizeof names);
    if (!*names)
        return fsdp_json_mismatch(
            r->object, key,
            "an integer: id2label of the model's config.json gives no names to its classes%s%s",
            o->class_hint ? "; " : "", o->class_hint ? o->class_hint : "");
    return fsdp_json_mismatch(r->object, key, "one of %s, or an integer from 0 to %" PRId64, names,
                              o->num_classes - 1);
}

/* Read a class: a number, or one of the model's class names. */
static fsdp_status read_class(const reading *r, const char *key, int64_t *class)
{
    const fsdp_dataset_options *o = r->options;
    const fsdp_json_node label = fsdp_json_find(r->object, key);
    const char *name;
    if (fsdp_json_kind_of(label) == FSDP_JSON_STRING) {
        FSDP_TRY(fsdp_json_get_str(label, NULL, &name));
        for (*class = 0; o->class_names && *class < o->num_classes; ++*class)
            if (o->class_names[*class] && strcmp(o->class_names[*class], name) == 0)
                return FSDP_OK;
        return refuse_name(r, key);
    }
    if (fsdp_json_kind_of(label) != FSDP_JSON_INT || o->num_classes == INT32_MAX)
        return fsdp_json_get_i64(r->object, key, 0, o->num_classes - 1, class);
    if (fsdp_json_get_i64(label, NULL, 0, o->num_classes - 1, class) == FSDP_OK)
        return FSDP_OK;
    return fsdp_json_mismatch(
        r->object, key, "an integer from 0 to %" PRId64 ": the model has %" PRId64 " classes%s%s",
        o->num_classes - 1, o->num_classes, o->class_hint ? "; " : "",
        o->class_hint ? o->class_hint : "");
}

static fsdp_status read_classified(reading *r, fsdp_example *example)
{
    const char *key = fsdp_json_has(r->object, "labels") ? "labels" : "label";
    static const char *const with_labels[] = {"input_ids",    "attention_mask", "token_type_ids",
                                              "position_ids", "labels",         NULL};
    static const char *const with_label[] = {"input_ids",    "attention_mask", "token_type_ids",
                                             "position_ids", "label",          NULL};
    int64_t class = 0;
    r->keys = strcmp(key, "labels") == 0 ? with_labels : with_label;
    FSDP_TRY(read_source(r, &example->source));
    FSDP_TRY(take_beside(r, "token_type_ids", 0, r->options->type_vocab_size - 1,
                         &example->token_type_ids));
    FSDP_TRY(take_beside(r, "position_ids", 0, INT32_MAX, &example->position_ids));
    FSDP_TRY(check_positions(r, &example->position_ids));
    example->position_ids.len = 0;
    if (r->options->problem_type != FSDP_PROBLEM_SINGLE_LABEL)
        return fsdp_label_numbers_of_json(r->options, fsdp_json_find(r->object, key), example);
    FSDP_TRY(read_class(r, key, &class));
    return fsdp_token_list_set(&example->labels, &(int32_t){(int32_t) class}, 1);
}

static fsdp_status read_example(reading *r, fsdp_example *example)
{
    switch (r->options->task) {
    case FSDP_TASK_CAUSAL_LM:
    case FSDP_TASK_MASKED_LM:
        return read_causal(r, example);
    case FSDP_TASK_CLASSIFICATION:
        return read_classified(r, example);
    case FSDP_TASK_SEQ2SEQ:
        break;
    }
    return read_seq2seq(r, example);
}

/* ---- keys that are not used ---- */

static bool is_used(const reading *r, const char *key)
{
    for (const char *const *used = r->keys; used && *used; used++)
        if (strcmp(*used, key) == 0)
            return true;
    return (r->prompt && strcmp(r->prompt, key) == 0) || (r->text && strcmp(r->text, key) == 0);
}

static fsdp_status check_keys(const reading *r, int64_t line, fsdp_unused_keys *unused)
{
    for (fsdp_json_node v = fsdp_json_first(r->object); v.value; v = fsdp_json_next(v))
        if (!is_used(r, v.key) && fsdp_json_kind_of(v) != FSDP_JSON_NULL)
            FSDP_TRY(fsdp_unused_key(r->object, v, line, unused));
    return FSDP_OK;
}

unsigned fsdp_jsonl_rows_uses(const fsdp_jsonl_rows *rows)
{
    return (rows->any_texts ? FSDP_USES_TEXTS : 0u) | (rows->any_chat ? FSDP_USES_CHAT : 0u) |
           (rows->any_completions ? FSDP_USES_COMPLETION : 0u);
}

fsdp_status fsdp_jsonl_row(fsdp_json_node object, const fsdp_dataset_options *options, int64_t line,
                           fsdp_example *example, fsdp_jsonl_rows *rows)
{
    reading r = {.object = object, .options = options, .whole = rows->whole};
    if (r.whole)
        r.whole->len = 0;
    if (fsdp_json_kind_of(object) != FSDP_JSON_OBJECT)
        return fsdp_json_mismatch(object, NULL, "an object");
    FSDP_TRY(read_example(&r, example));
    rows->any_texts |= r.text != NULL;
    rows->is_chat = r.is_chat;
    rows->any_chat |= r.is_chat;
    rows->any_completions |= r.prompt != NULL;
    rows->cut = r.cut;
    return check_keys(&r, line, &rows->unused);
}

/* Keys that determine the form of a row. The keys after the first N_ID_KEYS are ignored for this
 * purpose if an option names the key of the text. */
static const char *const form_keys[] = {"input_ids",     "prompt_ids", "completion_ids",
                                        "prompt_length", "messages",   "conversations",
                                        "prompt",        "completion"};
enum {
    N_ID_KEYS = 4
};

static bool is_form_key(const fsdp_dataset_options *o, const char *name, size_t bytes)
{
    const size_t n = o->source_column ? N_ID_KEYS : FSDP_LENGTH(form_keys);
    for (size_t i = 0; i < n; i++)
        if (strncmp(form_keys[i], name, bytes) == 0 && !form_keys[i][bytes])
            return true;
    return false;
}

/* Return the key of the text, if a row with only this key is a row of text. Otherwise return
 * NULL. */
static const char *only_text_key(const fsdp_dataset_options *o)
{
    const char *key = o->source_column ? o->source_column : "text";
    if ((o->task != FSDP_TASK_CAUSAL_LM && o->task != FSDP_TASK_MASKED_LM) || o->target_column)
        return NULL;
    /* A quote, a backslash or a control character in a key is written as an escape in the row.
     * fsdp_json_find_text() does not find a key with an escape. */
    for (const char *at = key; *at; at++)
        if (*at == '"' || *at == '\\' || (unsigned char)*at < 0x20)
            return NULL;
    return is_form_key(o, key, strlen(key)) ? NULL : key;
}

/* Return true if the keys of a row other than the key of its text may change how the row is read,
 * or may be the reason to refuse the row. */
static bool others_matter(const fsdp_dataset_options *o, const fsdp_json_text *found)
{
    for (size_t i = 0; i < found->n_others; i++) {
        const fsdp_json_text_key *other = &found->others[i];
        if (is_form_key(o, other->name, other->bytes) ||
            fsdp_key_may_be_refused(other->name, other->bytes))
            return true;
    }
    return false;
}

static fsdp_status collect_others(const fsdp_json_text *found, int64_t line,
                                  fsdp_unused_keys *unused)
{
    for (size_t i = 0; i < found->n_others; i++)
        if (!found->others[i].is_null)
            FSDP_TRY(fsdp_collect_unused_name(found->others[i].name, found->others[i].bytes, line,
                                              unused));
    return FSDP_OK;
}

bool fsdp_jsonl_text_row(const fsdp_json_row *row, const fsdp_dataset_options *options,
                         fsdp_json_text *found, fsdp_example *example, fsdp_jsonl_rows *rows)
{
    const char *key = only_text_key(options);
    const fsdp_data_text prefix = {options->source_prefix, strlen(options->source_prefix)};
    int64_t cut;
    if (!key || rows->whole || !fsdp_json_find_text(row->text, row->length, key, found) ||
        others_matter(options, found) || fsdp_check_tokenizer("row", "a text", options) != FSDP_OK)
        return false;
    const fsdp_data_text text = {found->text.data, found->text.len};
    if (fsdp_causal_text_encode(options, prefix, text, example, &cut) != FSDP_OK ||
        collect_others(found, row->line, &rows->unused) != FSDP_OK) {
        fsdp_example_empty(example);
        return false;
    }
    rows->any_texts = true;
    rows->cut = cut;
    return true;
}
