/* Opens a dataset: determines its kind from the path and the options. */
#include <inttypes.h>

#include "src/base/io.h"
#include "src/data/dataset.h"
#include "src/data/masked_dataset.h"

enum {
    ROW_TOKENS = 1024 /* default for token files, as in llm.c; also the context length of GPT-2 */
};

/* Refuse a pipe. The data of a pipe can be read only once, but a dataset's file is read several
 * times: every rank reads it, and its first bytes are also read to find out what kind of file it
 * is. */
static fsdp_status check_is_kept(const char *path)
{
    const fsdp_status status = fsdp_path_check(path);
    if (status != FSDP_ERR_INVALID)
        return status;
    return fsdp_error(status,
                      "%s: neither a regular file nor a directory; data are read more than once, "
                      "and by every rank, which a pipe does not allow: write them to a file",
                      path);
}

static fsdp_status open_rows(const char *path, fsdp_dataset_options full, fsdp_dataset **out)
{
    bool tokens = false;
    FSDP_TRY(fsdp_is_token_path(path, &tokens));
    if (!full.max_length)
        full.max_length =
            tokens && full.max_positions > ROW_TOKENS ? ROW_TOKENS : full.max_positions;
    if (!tokens && full.split_documents && !full.validation)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: documents are split at token %" PRId32
                          " (--document-token) in token files (.bin) only",
                          path, full.document_token);
    if (full.span_corruption) {
        fsdp_dataset_complete_lengths(&full);
        return fsdp_span_dataset_open(path, tokens, &full, out);
    }
    if (!tokens)
        return fsdp_text_dataset_open(path, &full, out);
    if (full.split != FSDP_SPLIT_ALL)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: a folder of token files has files for validation, not a split",
                          path);
    if (full.task != FSDP_TASK_CAUSAL_LM)
        return fsdp_error(
            FSDP_ERR_INVALID, "%s: token files are for causal language modeling%s", path,
            full.task == FSDP_TASK_SEQ2SEQ ? " and span corruption; pairs come as JSON lines or CSV"
                                           : "; other tasks take JSON lines");
    return fsdp_token_dataset_open(path, &full, out);
}

/* Open rows for a masked language model: those of a causal one, which are then masked. */
static fsdp_status open_masked(const char *path, const fsdp_dataset_options *options,
                               fsdp_dataset **out)
{
    static const fsdp_masking none = {.mask_token_id = -1};
    fsdp_dataset_options of_rows = *options;
    fsdp_dataset *rows;
    if (options->target_column)
        return fsdp_error(FSDP_ERR_INVALID,
                          "dataset: target column '%s': a masked language model has one text a row",
                          options->target_column);
    of_rows.task = FSDP_TASK_CAUSAL_LM;
    of_rows.masking = options->masking ? options->masking : &none;
    if (!of_rows.source_column)
        of_rows.source_column = "text";
    FSDP_TRY(open_rows(path, of_rows, &rows));
    fsdp_status status = fsdp_masked_dataset_create(path, rows, options, out);
    if (status != FSDP_OK)
        fsdp_dataset_close(rows);
    return status;
}

fsdp_status fsdp_dataset_open(const char *path, const fsdp_dataset_options *options,
                              fsdp_dataset **out)
{
    fsdp_dataset_options full;
    FSDP_TRY(fsdp_dataset_complete_options(options, &full));
    FSDP_TRY(check_is_kept(path));
    if (full.task == FSDP_TASK_MASKED_LM)
        return open_masked(path, &full, out);
    full.masking = NULL; /* rows with a masking are those of a masked language model */
    return open_rows(path, full, out);
}
