/* Options of a dataset: checks and defaults. */
#include <inttypes.h>
#include <string.h>

#include "src/data/rows/dataset_options.h"

fsdp_status fsdp_dataset_check_has_pairs(const fsdp_dataset_options *o, bool pairs)
{
    if (pairs || (o->cleaning == FSDP_CLEANING_NONE && !o->skip_long_summaries))
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_INVALID, "%s is for pairs of texts in CSV, for sequence to sequence models",
        o->cleaning == FSDP_CLEANING_NONE ? "leaving out long summaries" : "WikiHow's cleaning");
}

void fsdp_dataset_complete_lengths(fsdp_dataset_options *o)
{
    if (!o->max_source_length)
        o->max_source_length = 512;
    if (!o->max_target_length)
        o->max_target_length = 150;
}

static fsdp_status check_options(const fsdp_dataset_options *o)
{
    if (o->max_source_length < 0 || o->max_target_length < 0 || o->max_length < 0 ||
        o->max_positions < 0 || o->max_samples < 0 || o->vocab_size < 0 || o->type_vocab_size < 0 ||
        o->num_classes < 0)
        return fsdp_error(
            FSDP_ERR_INVALID,
            "dataset: negative option (max source length %d, max target length %d, "
            "max length %" PRId64 ", max positions %" PRId64 ", max samples %" PRId64
            ", vocab size %" PRId64 ", type vocab size %" PRId64 ", classes %" PRId64 ")",
            o->max_source_length, o->max_target_length, o->max_length, o->max_positions,
            o->max_samples, o->vocab_size, o->type_vocab_size, o->num_classes);
    if (o->span_corruption && o->task != FSDP_TASK_SEQ2SEQ)
        return fsdp_error(FSDP_ERR_INVALID, "dataset: span corruption is for sequence to sequence "
                                            "models");
    if (o->problem_type != FSDP_PROBLEM_SINGLE_LABEL &&
        (o->task != FSDP_TASK_CLASSIFICATION || o->num_classes < 1 || o->num_classes >= INT32_MAX))
        return fsdp_error(FSDP_ERR_INVALID,
                          "dataset: labels that are numbers are for classification, and need the "
                          "number of labels of a row; it is %" PRId64,
                          o->num_classes);
    if (o->label_lists != FSDP_LABEL_LISTS_AUTO && o->problem_type != FSDP_PROBLEM_MULTI_LABEL)
        return fsdp_error(FSDP_ERR_INVALID, "label lists (--label-lists) are for "
                                            "multi_label_classification (--problem-type)");
    FSDP_TRY(fsdp_dataset_check_has_pairs(o, o->task == FSDP_TASK_SEQ2SEQ && !o->span_corruption));
    if (o->max_positions && o->max_length > o->max_positions)
        return fsdp_error(FSDP_ERR_INVALID,
                          "dataset: rows of up to %" PRId64
                          " tokens, but the model has positions for %" PRId64,
                          o->max_length, o->max_positions);
    if (o->task != FSDP_TASK_SEQ2SEQ && o->target_column && !o->source_column)
        return fsdp_error(FSDP_ERR_INVALID,
                          "dataset: target column '%s' without a source column: a completion needs "
                          "a prompt",
                          o->target_column);
    return FSDP_OK;
}

/* Check the options for languages and the format of CSV. */
static fsdp_status check_text_options(const fsdp_dataset_options *o)
{
    if (!o->source_lang != !o->target_lang)
        return fsdp_error(FSDP_ERR_INVALID,
                          "dataset: a %s language without the other one: a translation has both",
                          o->source_lang ? "source" : "target");
    if (o->source_lang && (o->source_column || o->target_column))
        return fsdp_error(FSDP_ERR_INVALID, "dataset: columns and languages exclude each other");
    if (o->text_pair_column && !o->source_column)
        return fsdp_error(FSDP_ERR_INVALID,
                          "dataset: second text '%s' without the column of the first one",
                          o->text_pair_column);
    if (o->packing && o->task != FSDP_TASK_CAUSAL_LM)
        return fsdp_error(FSDP_ERR_INVALID, "dataset: packing is for causal language models");
    if (o->source_lang && o->task != FSDP_TASK_SEQ2SEQ)
        return fsdp_error(FSDP_ERR_INVALID,
                          "dataset: languages are for sequence to sequence models");
    if (o->delimiter && (strchr("\"\r\n", o->delimiter) || (unsigned char)o->delimiter >= 0x80))
        return fsdp_error(FSDP_ERR_INVALID,
                          "dataset: delimiter 0x%02x: expected an ASCII character other than a "
                          "quote and a line end",
                          (unsigned)(unsigned char)o->delimiter);
    return FSDP_OK;
}

fsdp_status fsdp_dataset_complete_options(const fsdp_dataset_options *given,
                                          fsdp_dataset_options *full)
{
    fsdp_dataset_options o = given ? *given : (fsdp_dataset_options){0};
    FSDP_TRY(check_options(&o));
    FSDP_TRY(check_text_options(&o));
    if (!o.max_positions)
        o.max_positions = INT64_MAX;
    if (!o.max_samples)
        o.max_samples = INT64_MAX;
    if (!o.vocab_size)
        o.vocab_size = o.tokenizer ? fsdp_tokenizer_vocab_size(o.tokenizer) : INT32_MAX;
    if (!o.type_vocab_size)
        o.type_vocab_size = INT32_MAX;
    if (!o.num_classes)
        o.num_classes = INT32_MAX;
    if (o.task != FSDP_TASK_MASKED_LM)
        o.masking = NULL;
    if (!o.source_prefix)
        o.source_prefix = "";
    *full = o;
    return FSDP_OK;
}
