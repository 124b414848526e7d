/* Opens a dataset: determines its kind from the path and the options. */
#include <inttypes.h>

#include "src/base/alloc.h"
#include "src/data/arrow/folder.h"
#include "src/data/datasets/dataset.h"
#include "src/data/datasets/masked_dataset.h"
#include "src/data/files/data_paths.h"
#include "src/data/files/input.h"
#include "src/data/labels/class_text.h"
#include "src/data/rows/dataset_options.h"

enum {
    /* Default of max_length for token files, plain text and packed rows, as in llm.c and run_clm.
     * It is also the context length of GPT-2. */
    ROW_TOKENS = 1024
};

/* Open rows of CSV and JSON, and join them if the options say so. */
static fsdp_status open_rows(const char *path, const fsdp_dataset_options *options,
                             fsdp_dataset **out)
{
    fsdp_dataset_options of_rows = *options;
    fsdp_dataset *rows;
    if (options->packing == FSDP_PACKING_NONE)
        return fsdp_text_dataset_open(path, options, out);
    if (options->packing == FSDP_PACKING_WRAPPED)
        of_rows.max_length = INT64_MAX; /* rows are cut after they are joined */
    FSDP_TRY(fsdp_text_dataset_open(path, &of_rows, &rows));
    fsdp_status status = fsdp_pack_dataset_create(rows, options, out);
    if (status != FSDP_OK)
        fsdp_dataset_close(rows);
    return status;
}

static fsdp_status open_tokens(const char *path, const fsdp_dataset_options *options,
                               fsdp_dataset **out)
{
    if (options->split != FSDP_SPLIT_ALL)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: token files have no split: other token files are for validation "
                          "(--validation-data)",
                          path);
    if (options->task != FSDP_TASK_CAUSAL_LM)
        return fsdp_error(
            FSDP_ERR_INVALID, "%s: token files are for causal language modeling%s", path,
            options->task == FSDP_TASK_SEQ2SEQ ? " and span corruption; pairs come as JSON or CSV"
                                               : "; other tasks take JSON or CSV");
    return fsdp_token_dataset_open(path, options, out);
}

/* Open `path`. If `tokens` is true, it is a token file, or a folder or a pattern of token files. */
static fsdp_status open_kind(const char *path, bool tokens, fsdp_dataset_options *o,
                             fsdp_dataset **out)
{
    bool plain = false;
    if (!tokens && !fsdp_is_arrow_path(path) && o->task == FSDP_TASK_CAUSAL_LM)
        FSDP_TRY(fsdp_is_plain_text(path, o, &plain));
    if (!o->max_length)
        o->max_length = (tokens || plain || o->packing) && o->max_positions > ROW_TOKENS
                            ? ROW_TOKENS
                            : o->max_positions;
    if (!tokens && o->split_documents && !o->validation)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: documents are split at token %" PRId32
                          " (--document-token) in token files (.bin) only",
                          path, o->document_token);
    if (o->span_corruption) {
        fsdp_dataset_complete_lengths(o);
        return fsdp_span_dataset_open(path, tokens, o, out);
    }
    if (tokens)
        return open_tokens(path, o, out);
    return plain ? fsdp_plain_dataset_open(path, o, out) : open_rows(path, o, out);
}

static fsdp_status open_path(const char *path, fsdp_dataset_options *o, fsdp_dataset **out)
{
    char *folder;
    bool tokens = false;
    if (fsdp_is_arrow_path(path))
        return open_kind(path, false, o, out);
    FSDP_TRY(fsdp_split_folder(path, o->validation, &folder));
    fsdp_status status = fsdp_is_token_path(folder, &tokens);
    if (status == FSDP_OK)
        status = open_kind(folder, tokens, o, out);
    fsdp_free(folder);
    return status;
}

/* Open rows for a masked language model: open them as for a causal language model, and mask them.
 */
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
    FSDP_TRY(open_path(path, &of_rows, &rows));
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
    FSDP_TRY(fsdp_input_check_kept(path));
    if (full.task == FSDP_TASK_MASKED_LM)
        return open_masked(path, &full, out);
    if (full.problem_type == FSDP_PROBLEM_MULTI_LABEL)
        FSDP_TRY(fsdp_label_lists_find(path, &full, &full.label_lists));
    full.masking = NULL; /* the field is set only while rows are read for a masked language model */
    return open_path(path, &full, out);
}
