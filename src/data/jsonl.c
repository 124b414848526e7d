/* Ready-made ids in JSON lines. Every row is parsed and checked when the file is opened and kept as
 * int32 in one array: less than the text it came from. */
#include <inttypes.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/batch.h"
#include "src/base/json.h"
#include "src/data/dataset.h"
#include "src/data/lines.h"

typedef struct row {
    size_t source; /* where its source begins in ids; its labels follow, up to the next row */
    size_t labels;
} row;

typedef struct jsonl_dataset {
    const fsdp_tokenizer *tokenizer; /* for texts; may be NULL */
    int32_t *ids;
    size_t ids_len, ids_cap;
    row *rows; /* [len], and one behind the last that says where it ends */
    size_t len, rows_cap;
} jsonl_dataset;

/* ---- reading ---- */

static fsdp_status add_ids(jsonl_dataset *d, const int64_t *ids, size_t count)
{
    if (!FSDP_GROW(d->ids, d->ids_cap, d->ids_len + count))
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < count; i++)
        d->ids[d->ids_len++] = (int32_t)ids[i];
    return FSDP_OK;
}

/* An array of `count` integers beside input_ids; *items stays NULL if there is none. */
static fsdp_status get_beside(fsdp_json_node object, const char *key, size_t count, int64_t **items)
{
    if (!fsdp_json_has(object, key))
        return FSDP_OK;
    size_t found = 0;
    FSDP_TRY(fsdp_json_get_i64s(object, key, 0, INT32_MAX, items, &found));
    if (found != count)
        return fsdp_json_mismatch(object, key, "%zu entries, as in input_ids", count);
    return FSDP_OK;
}

/* T5 knows distances only: positions may start anywhere but must count up by one. */
static fsdp_status check_positions(fsdp_json_node object, const int64_t *positions, int64_t first,
                                   int64_t end)
{
    for (int64_t i = first + 1; i < end; i++)
        if (positions[i] != positions[i - 1] + 1)
            return fsdp_json_mismatch(object, "position_ids",
                                      "positions that count up by one (entry %" PRId64 " does not)",
                                      i);
    return FSDP_OK;
}

static fsdp_status add_source(jsonl_dataset *d, fsdp_json_node object, int64_t vocab_size)
{
    int64_t *ids = NULL, *mask = NULL, *positions = NULL;
    size_t count = 0;
    fsdp_status status = fsdp_json_get_i64s(object, "input_ids", 0, vocab_size - 1, &ids, &count);
    int64_t first = 0, end = (int64_t)count;
    if (status == FSDP_OK && count == 0)
        status = fsdp_json_mismatch(object, "input_ids", "at least one id");
    if (status == FSDP_OK)
        status = get_beside(object, "attention_mask", count, &mask);
    if (status == FSDP_OK && mask)
        status = fsdp_mask_span(mask, (int64_t)count, &first, &end);
    if (status == FSDP_OK)
        status = get_beside(object, "position_ids", count, &positions);
    if (status == FSDP_OK && positions)
        status = check_positions(object, positions, first, end);
    if (status == FSDP_OK)
        status = add_ids(d, ids + first, (size_t)(end - first));
    fsdp_free(ids);
    fsdp_free(mask);
    fsdp_free(positions);
    return status;
}

static fsdp_status add_labels(jsonl_dataset *d, fsdp_json_node object, int64_t vocab_size)
{
    int64_t *labels = NULL;
    size_t count = 0;
    fsdp_status status =
        fsdp_json_get_i64s(object, "labels", FSDP_IGNORE_INDEX, vocab_size - 1, &labels, &count);
    for (size_t i = 0; status == FSDP_OK && i < count; i++)
        if (labels[i] < 0 && labels[i] != FSDP_IGNORE_INDEX)
            status = fsdp_json_mismatch(object, "labels",
                                        "ids or %d for no loss (entry %zu is %" PRId64 ")",
                                        FSDP_IGNORE_INDEX, i, labels[i]);
    if (status == FSDP_OK)
        status = add_ids(d, labels, count);
    fsdp_free(labels);
    return status;
}

static fsdp_status add_row(jsonl_dataset *d, const char *path, const fsdp_line *line,
                           int64_t vocab_size)
{
    fsdp_json *doc;
    fsdp_status parsed = fsdp_json_parse("row", line->number, line->text, line->length, &doc);
    if (parsed != FSDP_OK) {
        fsdp_error_context(parsed, "%s", path); /* it names line and column itself */
        return parsed;
    }
    fsdp_json_node object = fsdp_json_root(doc);
    size_t source = d->ids_len, labels = 0;
    fsdp_status status = fsdp_json_kind_of(object) == FSDP_JSON_OBJECT
                             ? add_source(d, object, vocab_size)
                             : fsdp_json_mismatch(object, NULL, "an object");
    if (status == FSDP_OK) {
        labels = d->ids_len;
        status = add_labels(d, object, vocab_size);
    }
    fsdp_json_destroy(doc);
    if (status == FSDP_OK && !FSDP_GROW(d->rows, d->rows_cap, d->len + 2))
        status = FSDP_ERR_NOMEM;
    if (status == FSDP_ERR_NOT_FOUND || status == FSDP_ERR_INVALID)
        status = FSDP_ERR_FORMAT; /* a missing key, a bad mask: the row is malformed */
    if (status != FSDP_OK) {
        fsdp_error_context(status, "%s: line %" PRId64, path, line->number);
        return status;
    }
    d->rows[d->len++] = (row){source, labels};
    d->rows[d->len] = (row){d->ids_len, d->ids_len};
    return FSDP_OK;
}

static bool is_blank(const fsdp_line *line)
{
    for (size_t i = 0; i < line->length; i++)
        if (line->text[i] != ' ' && line->text[i] != '\t')
            return false;
    return true;
}

static fsdp_status read_rows(jsonl_dataset *d, const char *path,
                             const fsdp_dataset_options *options)
{
    fsdp_lines *lines;
    FSDP_TRY(fsdp_lines_open(path, &lines));
    fsdp_status status = FSDP_OK;
    while (status == FSDP_OK && (int64_t)d->len < options->max_samples) {
        fsdp_line line;
        status = fsdp_lines_next(lines, &line);
        if (status != FSDP_OK || !line.text)
            break;
        if (!is_blank(&line))
            status = add_row(d, path, &line, options->vocab_size);
    }
    fsdp_lines_close(lines);
    if (status == FSDP_OK && d->len == 0)
        status = fsdp_error(FSDP_ERR_FORMAT, "%s: no rows", path);
    return status;
}

/* ---- the dataset ---- */

static int64_t jsonl_len(void *self)
{
    return (int64_t)((const jsonl_dataset *)self)->len;
}

static fsdp_status jsonl_get(void *self, int64_t index, fsdp_example *example)
{
    const jsonl_dataset *d = self;
    const row *r = &d->rows[index];
    FSDP_TRY(fsdp_token_list_set(&example->source, d->ids + r->source, r->labels - r->source));
    return fsdp_token_list_set(&example->labels, d->ids + r->labels, r[1].source - r->labels);
}

static fsdp_status decode(const jsonl_dataset *d, size_t first, size_t end, char **text)
{
    return fsdp_tokenizer_decode(d->tokenizer, d->ids + first, end - first,
                                 FSDP_DECODE_SKIP_SPECIAL | FSDP_DECODE_SKIP_UNKNOWN, text);
}

static fsdp_status jsonl_texts(void *self, int64_t index, char **source, char **target)
{
    const jsonl_dataset *d = self;
    const row *r = &d->rows[index];
    char *decoded = NULL;
    if (!d->tokenizer)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "ids without a tokenizer have no texts");
    FSDP_TRY(decode(d, r->source, r->labels, &decoded));
    fsdp_status status = decode(d, r->labels, r[1].source, target);
    if (status != FSDP_OK) {
        fsdp_text_free(decoded);
        return status;
    }
    *source = decoded;
    return FSDP_OK;
}

static void jsonl_close(void *self)
{
    jsonl_dataset *d = self;
    fsdp_free(d->ids);
    fsdp_free(d->rows);
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
    fsdp_status status = read_rows(d, path, options);
    if (status == FSDP_OK)
        status = fsdp_dataset_create(&jsonl_ops, d, out);
    if (status != FSDP_OK)
        jsonl_close(d);
    return status;
}
