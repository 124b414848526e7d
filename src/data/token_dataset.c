/* Token files as rows of equal length. A row's labels are the tokens one further, so it knows one
 * token more than it has; rows do not overlap, and none crosses from one file into the next. */
#include "src/data/dataset.h"

#include <inttypes.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/data/token_file.h"
#include "src/data/token_paths.h"

enum {
    ROW_TOKENS_MAX = 1 << 30,     /* a batch counts in int32 */
    CHECKED_BYTES_MAX = 64 << 20, /* files up to this size are checked when opened */
    VOCAB_UNKNOWN = INT32_MAX     /* of the options when nobody gave one */
};

typedef struct shard {
    fsdp_token_file file;
    int64_t first_row; /* of the dataset */
} shard;

typedef struct token_dataset {
    shard *shards;
    size_t len;
    int64_t rows, row_tokens, vocab_size;
    bool split_documents;
    int32_t document_token;
} token_dataset;

static int64_t token_len(void *self)
{
    return ((const token_dataset *)self)->rows;
}

/* The last shard that begins at `row` or before. */
static const shard *find_shard(const token_dataset *d, int64_t row)
{
    size_t low = 0, high = d->len;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (d->shards[middle].first_row <= row)
            low = middle;
        else
            high = middle;
    }
    return &d->shards[low];
}

static fsdp_status reserve(fsdp_token_list *list, size_t count)
{
    return FSDP_GROW(list->ids, list->cap, count) ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* Positions count from the last document token; what a row begins with is a document too. The token
 * that begins the next document is not predicted: the batch sees to it within the row. */
static fsdp_status split(const token_dataset *d, fsdp_example *example)
{
    fsdp_token_list *positions = &example->position_ids;
    const size_t n = example->source.len;
    FSDP_TRY(reserve(positions, n));
    int32_t position = 0;
    for (size_t i = 0; i < n; i++) {
        if (example->source.ids[i] == d->document_token)
            position = 0;
        positions->ids[i] = position++;
    }
    positions->len = n;
    if (example->labels.ids[n] == d->document_token)
        example->labels.ids[n] = FSDP_IGNORE_INDEX;
    return FSDP_OK;
}

static fsdp_status token_get(void *self, int64_t index, fsdp_example *example)
{
    const token_dataset *d = self;
    const shard *s = find_shard(d, index);
    const size_t n = (size_t)d->row_tokens;
    FSDP_TRY(reserve(&example->labels, n + 1));
    FSDP_TRY(fsdp_token_file_read(&s->file, (index - s->first_row) * d->row_tokens,
                                  d->row_tokens + 1, d->vocab_size, example->labels.ids));
    example->labels.len = n + 1;
    FSDP_TRY(fsdp_token_list_set(&example->source, example->labels.ids, n));
    return d->split_documents ? split(d, example) : FSDP_OK;
}

static void token_close(void *self)
{
    token_dataset *d = self;
    for (size_t i = 0; d->shards && i < d->len; i++)
        fsdp_token_file_close(&d->shards[i].file);
    fsdp_free(d->shards);
    fsdp_free(d);
}

static const fsdp_dataset_ops token_ops = {
    .len = token_len,
    .get = token_get,
    .close = token_close,
};

/* ---- opening ---- */

static fsdp_status open_shard(token_dataset *d, const char *path, shard *s)
{
    FSDP_TRY(fsdp_token_file_open(path, &s->file));
    if (s->file.plain && d->vocab_size > UINT16_MAX + 1 && d->vocab_size < VOCAB_UNKNOWN)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: no header, so uint16 after uint16, which cannot hold the %" PRId64
                          " ids of the model; llm.c's header with magic 20240801 tells of uint32",
                          path, d->vocab_size);
    s->first_row = d->rows;
    d->rows += (s->file.count - 1) / d->row_tokens;
    if (s->file.mapping.bytes > CHECKED_BYTES_MAX)
        return FSDP_OK;
    return fsdp_token_file_check(&s->file, d->vocab_size);
}

static fsdp_status open_shards(token_dataset *d, const fsdp_path_list *paths, int64_t max_rows)
{
    if (!(d->shards = fsdp_calloc(paths->len, sizeof *d->shards)))
        return FSDP_ERR_NOMEM;
    while (d->len < paths->len && d->rows < max_rows) {
        size_t i = d->len++; /* counted first: what fails half-way is closed too */
        FSDP_TRY(open_shard(d, paths->items[i], &d->shards[i]));
    }
    if (d->rows == 0)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s%s: %" PRId64 " tokens, fewer than a row of %" PRId64
                          " and the one that follows it",
                          paths->items[0], paths->len > 1 ? " and others" : "",
                          d->shards[0].file.count, d->row_tokens);
    if (d->rows > max_rows)
        d->rows = max_rows;
    return FSDP_OK;
}

static fsdp_status check_options(const fsdp_dataset_options *o)
{
    if (o->max_length > ROW_TOKENS_MAX)
        return fsdp_error(FSDP_ERR_INVALID, "token files: rows of %" PRId64 " tokens, above %d",
                          o->max_length, ROW_TOKENS_MAX);
    if (o->split_documents && (o->document_token < 0 || o->document_token >= o->vocab_size))
        return fsdp_error(FSDP_ERR_INVALID,
                          "token files: document token %d is no id of the model: 0 to %" PRId64,
                          (int)o->document_token, o->vocab_size - 1);
    return FSDP_OK;
}

fsdp_status fsdp_token_dataset_open(const char *path, const fsdp_dataset_options *options,
                                    fsdp_dataset **out)
{
    fsdp_path_list paths = {0};
    FSDP_TRY(check_options(options));
    FSDP_TRY(fsdp_token_paths(path, options->validation, &paths));
    token_dataset *d = fsdp_calloc(1, sizeof *d);
    fsdp_status status = d ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        d->row_tokens = options->max_length;
        d->vocab_size = options->vocab_size;
        d->split_documents = options->split_documents;
        d->document_token = options->document_token;
        status = open_shards(d, &paths, options->max_samples);
    }
    if (status == FSDP_OK)
        status = fsdp_dataset_create(&token_ops, d, out);
    fsdp_path_list_fini(&paths);
    if (status != FSDP_OK && d)
        token_close(d);
    return status;
}
