/* Opens token files, or plain text, as a dataset of rows of equal length. The label of each token
 * is the token after it. So the token that follows a row is also read. */
#include "src/data/datasets/dataset.h"
#include "src/data/rows/rows_form.h"

#include <inttypes.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/data/datasets/text_tokens.h"
#include "src/data/rows/causal_text.h"
#include "src/data/tokens/token_rows.h"

typedef struct token_dataset {
    fsdp_token_rows rows;
    bool split_documents;
    int32_t document_token;
    char *note; /* the text that fsdp_dataset_note() returns, or NULL */
} token_dataset;

static int64_t token_len(void *self)
{
    return ((const token_dataset *)self)->rows.rows;
}

static fsdp_status reserve_ids(fsdp_token_list *list, size_t count)
{
    return FSDP_GROW(list->ids, list->cap, count) ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* Set the positions of a row that may contain several documents. A document token is the first
 * token of a document and has position 0. The tokens before the first document token of the row
 * have positions that count from the beginning of the row.
 *
 * A document token must not be a label, because it is not predicted from the document before it.
 * For document tokens in the row, the batch code ensures this. But the last label of a row is the
 * token after the row, and the batch code does not know the position of that token. So if the token
 * after the row is a document token, this function replaces the last label by FSDP_IGNORE_INDEX. */
static fsdp_status split_into_documents(const token_dataset *d, fsdp_example *example)
{
    fsdp_token_list *positions = &example->position_ids;
    const size_t n = example->source.len;
    FSDP_TRY(reserve_ids(positions, n));
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
    const size_t n = (size_t)d->rows.row_tokens;
    FSDP_TRY(reserve_ids(&example->labels, n + 1));
    FSDP_TRY(fsdp_token_rows_read(&d->rows, index, example->labels.ids));
    example->labels.len = n + 1;
    FSDP_TRY(fsdp_token_list_set(&example->source, example->labels.ids, n));
    return d->split_documents ? split_into_documents(d, example) : FSDP_OK;
}

static fsdp_status token_left_out(void *self, const fsdp_row_range *range, fsdp_left_out *sum)
{
    sum->counted_rows += range->len;
    sum->unused_tokens += fsdp_token_rows_unused(&((const token_dataset *)self)->rows);
    return FSDP_OK;
}

static void token_close(void *self)
{
    token_dataset *d = self;
    fsdp_token_rows_close(&d->rows);
    fsdp_free(d->note);
    fsdp_free(d);
}

static const fsdp_dataset_ops token_ops = {
    .len = token_len,
    .get = token_get,
    .close = token_close,
};

/* ---- opening ---- */

static fsdp_status check_options(const fsdp_dataset_options *o)
{
    if (o->split_documents && (o->document_token < 0 || o->document_token >= o->vocab_size))
        return fsdp_error(FSDP_ERR_INVALID,
                          "token files: document token %d is not an id of the model: 0 to %" PRId64,
                          (int)o->document_token, o->vocab_size - 1);
    return FSDP_OK;
}

/* If `opened` is FSDP_OK, create a dataset that owns `d`. Otherwise, return `opened`. On any
 * failure, `d` is closed. */
static fsdp_status finish(token_dataset *d, fsdp_status opened, unsigned uses, fsdp_dataset **out)
{
    fsdp_status status = opened == FSDP_OK ? fsdp_dataset_create(&token_ops, d, out) : opened;
    if (status != FSDP_OK) {
        token_close(d);
        return status;
    }
    fsdp_dataset_set_uses(*out, uses);
    fsdp_dataset_set_note(*out, d->note);
    fsdp_dataset_set_left_out(*out, token_left_out);
    return FSDP_OK;
}

static token_dataset *create(const fsdp_dataset_options *options)
{
    token_dataset *d = fsdp_calloc(1, sizeof *d);
    if (d)
        *d = (token_dataset){.rows = {.row_tokens = options->max_length,
                                      .beyond = 1,
                                      .vocab_size = options->vocab_size},
                             .split_documents = options->split_documents,
                             .document_token = options->document_token};
    return d;
}

fsdp_status fsdp_token_dataset_open(const char *path, const fsdp_dataset_options *options,
                                    fsdp_dataset **out)
{
    FSDP_TRY(check_options(options));
    token_dataset *d = create(options);
    if (!d)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_token_rows_open(path, options, &d->rows);
    const bool plain = status == FSDP_OK && fsdp_token_rows_have_plain(&d->rows);
    return finish(d, status, plain ? FSDP_USES_DTYPE : 0, out);
}

fsdp_status fsdp_plain_dataset_open(const char *path, const fsdp_dataset_options *options,
                                    fsdp_dataset **out)
{
    fsdp_token_file file;
    fsdp_file_rows rows;
    FSDP_TRY(fsdp_check_tokenizer(path, "plain text", options));
    token_dataset *d = create(options);
    if (!d)
        return FSDP_ERR_NOMEM;
    d->split_documents = false;
    fsdp_status status = fsdp_text_tokens(path, options, &file, &d->note, &rows);
    if (status == FSDP_OK)
        status = fsdp_token_rows_of_file(&file, options->max_samples, &d->rows);
    FSDP_TRY(finish(d, status, FSDP_USES_DOCUMENTS, out));
    fsdp_dataset_set_file_rows(*out, rows);
    return FSDP_OK;
}
