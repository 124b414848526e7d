/* See token_rows.h. */
#include "src/data/tokens/token_rows.h"

#include <inttypes.h>

#include "src/base/alloc.h"
#include "src/data/files/data_paths.h"

enum {
    ROW_TOKENS_MAX = 1 << 30,     /* a batch counts tokens in int32 */
    CHECKED_BYTES_MAX = 64 << 20, /* files up to this size are checked when they are opened */
    VOCAB_UNKNOWN = INT32_MAX     /* value of options->vocab_size if the caller did not give one */
};

/* Return the shard that contains `row`: the last shard whose first_row is at most `row`. */
static const fsdp_token_shard *find_shard(const fsdp_token_rows *r, int64_t row)
{
    size_t low = 0, high = r->len;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (r->shards[middle].first_row <= row)
            low = middle;
        else
            high = middle;
    }
    return &r->shards[low];
}

fsdp_status fsdp_token_rows_read(const fsdp_token_rows *r, int64_t index, int32_t *ids)
{
    const fsdp_token_shard *s = find_shard(r, index);
    return fsdp_token_file_read(&s->file, (index - s->first_row) * r->row_tokens,
                                r->row_tokens + r->beyond, r->vocab_size, ids);
}

bool fsdp_token_rows_have_plain(const fsdp_token_rows *r)
{
    bool plain = false;
    for (size_t i = 0; i < r->len; i++)
        plain |= r->shards[i].file.plain;
    return plain;
}

int64_t fsdp_token_rows_unused(const fsdp_token_rows *r)
{
    int64_t unused = 0;
    for (size_t i = 0; i < r->len; i++) {
        const int64_t end = i + 1 < r->len ? r->shards[i + 1].first_row : r->rows;
        const int64_t n = r->shards[i].file.count, rows = end - r->shards[i].first_row;
        /* The last shard may have more rows than max_samples allows. The tokens of rows above this
         * limit do not count as unused. */
        const int64_t fit = n > r->beyond ? (n - r->beyond) / r->row_tokens : 0;
        if (rows == fit)
            unused += n - fit * r->row_tokens;
    }
    return unused;
}

void fsdp_token_rows_close(fsdp_token_rows *r)
{
    for (size_t i = 0; r->shards && i < r->len; i++)
        fsdp_token_file_close(&r->shards[i].file);
    fsdp_free(r->shards);
    *r = (fsdp_token_rows){0};
}

/* ---- opening ---- */

/* Set s->first_row, and add the number of rows of shard `s` to r->rows. The caller must have opened
 * the file of `s`. */
static void count_rows(fsdp_token_rows *r, fsdp_token_shard *s)
{
    s->first_row = r->rows;
    if (s->file.count > r->beyond)
        r->rows += (s->file.count - r->beyond) / r->row_tokens;
}

static fsdp_status open_shard(fsdp_token_rows *r, const char *path, fsdp_token_dtype dtype,
                              fsdp_token_shard *s)
{
    FSDP_TRY(fsdp_token_file_open(path, dtype, &s->file));
    if (s->file.plain && !s->file.has_dtype && r->vocab_size > UINT16_MAX + 1 &&
        r->vocab_size < VOCAB_UNKNOWN)
        return fsdp_error(
            FSDP_ERR_FORMAT,
            "%s: no header, so uint16 after uint16, which cannot hold the %" PRId64
            " ids of the model; llm.c's header with magic 20240801 declares uint32, and "
            "--token-dtype names the type of tokens without a header",
            path, r->vocab_size);
    count_rows(r, s);
    if (s->file.mapping.bytes > CHECKED_BYTES_MAX)
        return FSDP_OK;
    return fsdp_token_file_check(&s->file, r->vocab_size);
}

static fsdp_status limit_rows(fsdp_token_rows *r, int64_t max_rows)
{
    if (r->rows == 0)
        return fsdp_error(
            FSDP_ERR_FORMAT, "%s%s: %" PRId64 " tokens, fewer than a row of %" PRId64 "%s",
            r->shards[0].file.path, r->len > 1 ? " and others" : "", r->shards[0].file.count,
            r->row_tokens, r->beyond ? " and the one that follows it" : "");
    if (r->rows > max_rows)
        r->rows = max_rows;
    return FSDP_OK;
}

static fsdp_status open_shards(fsdp_token_rows *r, const fsdp_path_list *paths,
                               fsdp_token_dtype dtype, int64_t max_rows)
{
    if (!(r->shards = fsdp_calloc(paths->len, sizeof *r->shards)))
        return FSDP_ERR_NOMEM;
    while (r->len < paths->len && r->rows < max_rows) {
        size_t i = r->len++; /* Count the shard before it is opened. If open_shard() then fails,
                              * fsdp_token_rows_close() also closes this shard. */
        FSDP_TRY(open_shard(r, paths->items[i], dtype, &r->shards[i]));
    }
    return limit_rows(r, max_rows);
}

fsdp_status fsdp_token_rows_open(const char *path, const fsdp_dataset_options *options,
                                 fsdp_token_rows *r)
{
    fsdp_path_list paths = {0};
    if (r->row_tokens > ROW_TOKENS_MAX)
        return fsdp_error(FSDP_ERR_INVALID, "token files: rows of %" PRId64 " tokens, above %d",
                          r->row_tokens, ROW_TOKENS_MAX);
    FSDP_TRY(fsdp_token_paths(path, options->validation, &paths));
    fsdp_status status = open_shards(r, &paths, options->token_dtype, options->max_samples);
    fsdp_path_list_fini(&paths);
    if (status != FSDP_OK)
        fsdp_token_rows_close(r);
    return status;
}

fsdp_status fsdp_token_rows_of_file(fsdp_token_file *file, int64_t max_rows, fsdp_token_rows *r)
{
    if (!(r->shards = fsdp_calloc(1, sizeof *r->shards))) {
        fsdp_token_file_close(file);
        return FSDP_ERR_NOMEM;
    }
    r->len = 1;
    r->shards[0].file = *file;
    *file = (fsdp_token_file){0};
    count_rows(r, &r->shards[0]);
    fsdp_status status = limit_rows(r, max_rows);
    if (status != FSDP_OK)
        fsdp_token_rows_close(r);
    return status;
}
