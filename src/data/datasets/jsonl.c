/* Opens a file of JSON as a dataset of ids. Every row is parsed and checked when the file is
 * opened. The ids of all rows are kept in one array of int32, which is smaller than the text. */
#include <inttypes.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/json.h"
#include "src/data/datasets/dataset.h"
#include "src/data/datasets/ids.h"
#include "src/data/datasets/jsonl_row.h"
#include "src/data/json/json_rows.h"
#include "src/data/rows/rows_form.h"
#include "src/text/special_in_text.h"
#include "src/text/unknown_in_text.h"

/* The ids of a row begin at index `at` of `ids`: first its source ids, then its labels, its
 * positions and its types. Positions and types are optional. A row has either no positions or one
 * for each source id. The same is true for types. */
typedef struct row {
    size_t at;
    uint32_t source, labels; /* counts of source ids and of labels; a line has at most 64 MiB, so
                              * both counts are below 2^32 */
    bool positions, types;
    uint32_t targets;    /* number of targets (labels of regression or multi-label rows); they are
                            stored in `ids` as float32, at the end of the row */
    uint32_t cut;        /* number of ids beyond max_length, which were removed; 0 for SEQ2SEQ */
    const char *special; /* a special token in the row's texts, or NULL; borrowed from the
                          * tokenizer */
    uint32_t unknown;    /* 1 + index in jsonl_dataset.unknown; 0: the row's texts have no unknown
                          * tokens */
} row;

typedef struct jsonl_dataset {
    const fsdp_tokenizer *tokenizer; /* for texts; may be NULL */
    fsdp_task task;
    size_t max_source, max_target; /* SEQ2SEQ: limits on source ids and on labels; 0: none */
    int32_t eos;                   /* the id of </s>; -1: unknown */
    int32_t *ids;
    size_t ids_len, ids_cap;
    row *rows;
    size_t len, rows_cap;
    fsdp_unknown_in_text *unknown; /* one for each row that has unknown tokens in its texts */
    size_t unknown_len, unknown_cap;
    fsdp_jsonl_rows of_file;
    char *note; /* the text that fsdp_dataset_note() returns, or NULL */
} jsonl_dataset;

/* ---- reading ---- */

static void append_ids(jsonl_dataset *d, const fsdp_token_list *list)
{
    if (list->len)
        memcpy(d->ids + d->ids_len, list->ids, list->len * sizeof *list->ids);
    d->ids_len += list->len;
}

static fsdp_status keep_row(jsonl_dataset *d, const fsdp_example *e, const char *special,
                            const fsdp_unknown_in_text *unknown)
{
    size_t n = e->source.len + e->labels.len + e->position_ids.len + e->token_type_ids.len +
               e->num_targets;
    if (!FSDP_GROW(d->ids, d->ids_cap, d->ids_len + n) ||
        !FSDP_GROW(d->rows, d->rows_cap, d->len + 1))
        return FSDP_ERR_NOMEM;
    if (unknown->count) {
        if (!FSDP_GROW(d->unknown, d->unknown_cap, d->unknown_len + 1))
            return FSDP_ERR_NOMEM;
        d->unknown[d->unknown_len++] = *unknown;
    }
    d->rows[d->len++] = (row){.at = d->ids_len,
                              .source = (uint32_t)e->source.len,
                              .labels = (uint32_t)e->labels.len,
                              .positions = e->position_ids.len > 0,
                              .types = e->token_type_ids.len > 0,
                              .targets = (uint32_t)e->num_targets,
                              .cut = (uint32_t)d->of_file.cut,
                              .special = special,
                              .unknown = unknown->count ? (uint32_t)d->unknown_len : 0};
    append_ids(d, &e->source);
    append_ids(d, &e->labels);
    append_ids(d, &e->position_ids);
    append_ids(d, &e->token_type_ids);
    if (e->num_targets)
        memcpy(d->ids + d->ids_len, e->targets, e->num_targets * sizeof *e->targets);
    d->ids_len += e->num_targets;
    return FSDP_OK;
}

static fsdp_status parse_row(const fsdp_json_row *found, const fsdp_dataset_options *options,
                             const char *path, fsdp_json_text *text, fsdp_example *example,
                             fsdp_jsonl_rows *rows)
{
    fsdp_json *doc;
    fsdp_example_empty(example);
    if (fsdp_jsonl_text_row(found, options, text, example, rows))
        return FSDP_OK;
    FSDP_TRY(fsdp_json_row_parse(path, found, &doc));
    fsdp_status status = fsdp_jsonl_row(fsdp_json_root(doc), options, found->line, example, rows);
    fsdp_json_destroy(doc);
    if (status == FSDP_ERR_NOT_FOUND)
        status = FSDP_ERR_FORMAT; /* a row that lacks a key is malformed */
    fsdp_json_row_context(status, path, found);
    return status;
}

static fsdp_status read_each(jsonl_dataset *d, fsdp_json_rows *rows, const char *path,
                             const fsdp_dataset_options *options)
{
    fsdp_example example = {0};
    fsdp_json_text text = {0};
    fsdp_status status = FSDP_OK;
    const fsdp_special_in_text *special = fsdp_special_in_text_of_thread();
    while (status == FSDP_OK && (int64_t)d->len < options->max_samples) {
        fsdp_json_row found;
        const int64_t before = special->count;
        status = fsdp_json_rows_next(rows, &found);
        if (status != FSDP_OK || !found.text)
            break;
        fsdp_unknown_in_text unknown = fsdp_unknown_in_next_row((int64_t)d->unknown_len, NULL);
        fsdp_unknown_in_text *outer = fsdp_unknown_in_text_watch(&unknown);
        status = parse_row(&found, options, path, &text, &example, &d->of_file);
        fsdp_unknown_in_text_watch(outer);
        if (status == FSDP_OK)
            status =
                keep_row(d, &example, special->count > before ? special->last : NULL, &unknown);
    }
    fsdp_json_text_fini(&text);
    fsdp_example_fini(&example);
    return status;
}

static fsdp_status read_rows(jsonl_dataset *d, const char *path,
                             const fsdp_dataset_options *options)
{
    fsdp_input *input;
    fsdp_json_rows *rows;
    FSDP_TRY(fsdp_input_open(path, &input));
    fsdp_status status = fsdp_json_rows_open(input, path, options->json_field, &rows);
    if (status == FSDP_OK) {
        status = read_each(d, rows, path, options);
        fsdp_json_rows_close(rows);
    }
    fsdp_input_close(input);
    if (status == FSDP_OK && d->len == 0)
        status = fsdp_error(FSDP_ERR_FORMAT, "%s: no rows", path);
    if (status == FSDP_OK)
        status = fsdp_unused_keys_note(&d->of_file.unused, path, &d->note);
    fsdp_unused_keys_fini(&d->of_file.unused);
    return status;
}

/* ---- functions of the dataset ---- */

static int64_t jsonl_len(void *self)
{
    return (int64_t)((const jsonl_dataset *)self)->len;
}

static fsdp_status jsonl_get(void *self, int64_t index, fsdp_example *example)
{
    const jsonl_dataset *d = self;
    const row *r = &d->rows[index];
    const int32_t *at = d->ids + r->at;
    FSDP_TRY(fsdp_token_list_set(&example->source, at, r->source));
    FSDP_TRY(fsdp_token_list_set(&example->labels, at += r->source, r->labels));
    at += r->labels;
    fsdp_ids_cut(&example->source, d->max_source, d->eos);
    fsdp_ids_cut(&example->labels, d->max_target, d->eos);
    if (r->positions) {
        FSDP_TRY(fsdp_token_list_set(&example->position_ids, at, r->source));
        at += r->source;
    }
    if (r->types) {
        FSDP_TRY(fsdp_token_list_set(&example->token_type_ids, at, r->source));
        at += r->source;
    }
    return r->targets ? fsdp_example_set_targets(example, (const float *)at, r->targets) : FSDP_OK;
}

static fsdp_status jsonl_texts(void *self, int64_t index, char **source, char **target)
{
    const jsonl_dataset *d = self;
    const row *r = &d->rows[index];
    const int32_t *ids = d->ids + r->at;
    return fsdp_ids_texts(d->tokenizer, d->task, (fsdp_id_list){ids, r->source},
                          (fsdp_id_list){ids + r->source, r->labels}, source, target);
}

static int64_t beyond(size_t count, size_t limit)
{
    return limit && count > limit ? (int64_t)(count - limit) : 0;
}

/* Return the number of ids of a row that are beyond its limits. */
static int64_t cut_of(const jsonl_dataset *d, const row *r)
{
    return beyond(r->source, d->max_source) + beyond(r->labels, d->max_target) + r->cut;
}

static fsdp_status jsonl_get_cut(void *self, int64_t index, fsdp_example *example, int64_t *cut)
{
    const jsonl_dataset *d = self;
    FSDP_TRY(jsonl_get(self, index, example));
    *cut = cut_of(d, &d->rows[index]);
    if (d->rows[index].special)
        fsdp_special_in_text_add(d->rows[index].special);
    if (d->rows[index].unknown && fsdp_unknown_in_text_watched())
        fsdp_unknown_in_text_add(fsdp_unknown_in_text_watched(),
                                 &d->unknown[d->rows[index].unknown - 1]);
    return FSDP_OK;
}

static fsdp_status jsonl_left_out(void *self, const fsdp_row_range *range, fsdp_left_out *sum)
{
    const jsonl_dataset *d = self;
    for (int64_t i = range->first; i < range->first + range->len; i++) {
        const int64_t cut = cut_of(d, &d->rows[i]);
        sum->cut_rows += cut > 0;
        sum->cut_tokens += cut;
        if (d->rows[i].special)
            fsdp_left_out_add_special(sum, i, d->rows[i].special);
        if (d->rows[i].unknown)
            fsdp_left_out_add_unknown(sum, i, &d->unknown[d->rows[i].unknown - 1]);
    }
    sum->counted_rows += range->len;
    return FSDP_OK;
}

static void jsonl_close(void *self)
{
    jsonl_dataset *d = self;
    fsdp_free(d->ids);
    fsdp_free(d->rows);
    fsdp_free(d->unknown);
    fsdp_free(d->note);
    fsdp_free(d);
}

static const fsdp_dataset_ops jsonl_ops = {
    .len = jsonl_len,
    .get = jsonl_get,
    .texts = jsonl_texts,
    .close = jsonl_close,
};

fsdp_status fsdp_jsonl_dataset_open(const char *path, const fsdp_dataset_options *options,
                                    fsdp_dataset **out)
{
    jsonl_dataset *d = fsdp_calloc(1, sizeof *d);
    if (!d)
        return FSDP_ERR_NOMEM;
    d->tokenizer = options->tokenizer;
    d->task = options->task;
    if (d->task == FSDP_TASK_SEQ2SEQ) { /* other tasks are truncated in jsonl_row.c */
        d->max_source = (size_t)options->max_source_length;
        d->max_target = (size_t)options->max_target_length;
    }
    d->eos = fsdp_ids_eos(options);
    fsdp_status status = read_rows(d, path, options);
    if (status == FSDP_OK)
        status = fsdp_dataset_create(&jsonl_ops, d, out);
    if (status != FSDP_OK) {
        jsonl_close(d);
        return status;
    }
    fsdp_dataset_set_uses(*out, FSDP_USES_JSON | fsdp_jsonl_rows_uses(&d->of_file));
    fsdp_dataset_set_note(*out, d->note);
    fsdp_dataset_set_left_out(*out, jsonl_left_out);
    fsdp_dataset_set_get_cut(*out, jsonl_get_cut);
    return FSDP_OK;
}
