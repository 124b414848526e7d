/* Opens texts or token files as a dataset for span corruption (Note [Span corruption] in
 * span_corruption.c). The tokens are divided into rows of equal length. A row is the piece of text
 * from which one example is made (span_corruption.h). */
#include "src/data/datasets/dataset.h"
#include "src/data/rows/rows_form.h"

#include <inttypes.h>

#include "src/base/alloc.h"
#include "src/base/philox.h"
#include "src/data/datasets/span_corruption.h"
#include "src/data/datasets/text_tokens.h"
#include "src/data/rows/causal_text.h"
#include "src/data/tokens/token_rows.h"

typedef struct span_dataset {
    fsdp_token_rows rows;
    fsdp_span_lengths lengths;
    const fsdp_tokenizer *tokenizer;
    char *note; /* the text that fsdp_dataset_note() returns, or NULL */
} span_dataset;

static int64_t span_len(void *self)
{
    return ((const span_dataset *)self)->rows.rows;
}

/* Return the key from which the spans of example `index` are drawn. The key depends on seed, epoch
 * and index. The sampler also computes a key from seed and epoch, for the order of the examples.
 * `domain` makes sure that the key for spans is not the sampler's key. */
static uint64_t key_of(const fsdp_draw *draw, int64_t index)
{
    const uint64_t domain = 0x7370616E; /* the letters "span" in ASCII */
    uint64_t key = fsdp_mix64(fsdp_mix64(draw->seed ^ domain << 32) + (uint64_t)draw->epoch);
    return fsdp_mix64(key + (uint64_t)index);
}

static fsdp_status span_draw(void *self, int64_t index, const fsdp_draw *draw,
                             fsdp_example *example)
{
    const span_dataset *d = self;
    int32_t *piece = fsdp_calloc((size_t)d->lengths.piece, sizeof *piece);
    if (!piece)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_token_rows_read(&d->rows, index, piece);
    if (status == FSDP_OK)
        status = fsdp_span_corrupt(&d->lengths, key_of(draw, index), piece,
                                   fsdp_tokenizer_first_sentinel(d->tokenizer),
                                   fsdp_tokenizer_eos_id(d->tokenizer), example);
    fsdp_free(piece);
    return status;
}

static fsdp_status span_texts(void *self, int64_t index, char **source, char **target)
{
    const span_dataset *d = self;
    fsdp_example example = {0};
    fsdp_status status = span_draw(self, index, &(fsdp_draw){0}, &example);
    if (status == FSDP_OK)
        status =
            fsdp_tokenizer_decode(d->tokenizer, example.source.ids, example.source.len, 0, source);
    if (status == FSDP_OK)
        status =
            fsdp_tokenizer_decode(d->tokenizer, example.labels.ids, example.labels.len, 0, target);
    if (status != FSDP_OK) {
        fsdp_text_free(*source);
        *source = NULL;
    }
    fsdp_example_fini(&example);
    return status;
}

static fsdp_status span_left_out(void *self, const fsdp_row_range *range, fsdp_left_out *sum)
{
    sum->counted_rows += range->len;
    sum->unused_tokens += fsdp_token_rows_unused(&((const span_dataset *)self)->rows);
    return FSDP_OK;
}

static void span_close(void *self)
{
    span_dataset *d = self;
    fsdp_token_rows_close(&d->rows);
    fsdp_free(d->note);
    fsdp_free(d);
}

static const fsdp_dataset_ops span_ops = {
    .len = span_len,
    .draw = span_draw,
    .texts = span_texts,
    .close = span_close,
};

/* ---- opening ---- */

static fsdp_status check_sentinels(const fsdp_tokenizer *tokenizer, const fsdp_span_lengths *n)
{
    const int32_t sentinels = fsdp_tokenizer_extra_ids(tokenizer);
    if (n->spans <= sentinels)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: %d sentinels (<extra_id_0> ...), but pieces of %" PRId64
                      " tokens have %" PRId64 " noise spans; shorter inputs or longer spans have "
                      "fewer",
                      fsdp_tokenizer_path(tokenizer), (int)sentinels, n->piece, n->spans);
}

static fsdp_status open_rows(const char *path, bool tokens, const fsdp_dataset_options *options,
                             fsdp_token_rows *rows, char **note, fsdp_file_rows *of_files)
{
    fsdp_token_file file;
    if (tokens && options->split != FSDP_SPLIT_ALL)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: token files have no split: other token files are for validation "
                          "(--validation-data)",
                          path);
    if (tokens)
        return fsdp_token_rows_open(path, options, rows);
    FSDP_TRY(fsdp_text_tokens(path, options, &file, note, of_files));
    return fsdp_token_rows_of_file(&file, options->max_samples, rows);
}

fsdp_status fsdp_span_dataset_open(const char *path, bool tokens,
                                   const fsdp_dataset_options *options, fsdp_dataset **out)
{
    const fsdp_span_corruption noise = fsdp_span_corruption_complete(options->span_corruption);
    fsdp_span_lengths lengths;
    FSDP_TRY(fsdp_check_tokenizer(path, "span corruption", options));
    FSDP_TRY(fsdp_span_lengths_find(&noise, options->max_source_length, &lengths));
    FSDP_TRY(check_sentinels(options->tokenizer, &lengths));
    span_dataset *d = fsdp_calloc(1, sizeof *d);
    if (!d)
        return FSDP_ERR_NOMEM;
    *d = (span_dataset){.rows = {.row_tokens = lengths.piece, .vocab_size = options->vocab_size},
                        .lengths = lengths,
                        .tokenizer = options->tokenizer};
    fsdp_file_rows of_files = {0}; /* not set for token files */
    fsdp_status status = open_rows(path, tokens, options, &d->rows, &d->note, &of_files);
    bool plain = true;
    if (status == FSDP_OK && !tokens)
        status = fsdp_is_plain_text(path, options, &plain);
    if (status == FSDP_OK)
        status = fsdp_dataset_create(&span_ops, d, out);
    if (status != FSDP_OK) {
        span_close(d);
        return status;
    }
    fsdp_dataset_set_uses(*out, !plain   ? FSDP_USES_SOURCE_COLUMN | FSDP_USES_CSV | FSDP_USES_JSON
                                : tokens ? FSDP_USES_DTYPE
                                         : FSDP_USES_DOCUMENTS);
    fsdp_dataset_set_note(*out, d->note);
    fsdp_dataset_set_left_out(*out, span_left_out);
    fsdp_dataset_set_file_rows(*out, of_files);
    return FSDP_OK;
}
