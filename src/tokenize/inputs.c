/* Opens what a run of `fsdp tokenize` reads: the tokenizer, the chat template and the data. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/cpus.h"
#include "src/base/io.h"
#include "src/data/labels/class_text.h"
#include "src/data/rows/dataset_options.h"
#include "src/data/rows/rows_form.h"
#include "src/report/terminal.h"
#include "src/tokenize/tokenize.h"

enum {
    LONG_BYTES = 32 << 20 /* files with at least this many bytes of text get a progress bar */
};

/* ---- the tokenizer ---- */

/* Open the chat template that the user named, or else that of the tokenizer's folder. If the
 * template of the tokenizer's folder cannot be opened, set in->why_no_chat to the reason and return
 * FSDP_OK. Conversations in the data are then an error. */
static fsdp_status open_chat_template(const fsdp_tokenize_config *c, fsdp_tokenize_inputs *in)
{
    char *parent = fsdp_path_parent(c->tokenizer);
    if (!parent)
        return FSDP_ERR_NOMEM;
    const char *folder = fsdp_path_is_directory(c->tokenizer) ? c->tokenizer : parent;
    const fsdp_status status =
        fsdp_chat_template_open(folder, c->chat.chat_template, &in->chat_template);
    fsdp_free(parent);
    if (status == FSDP_OK || status == FSDP_ERR_NOMEM || c->chat.chat_template)
        return status;
    snprintf(in->why_no_chat, sizeof in->why_no_chat, "%.*s", (int)sizeof in->why_no_chat - 1,
             fsdp_last_error());
    return FSDP_OK;
}

static fsdp_status open_tokenizer(const fsdp_tokenize_config *c, fsdp_tokenize_inputs *in)
{
    if (c->train_vocab)
        return FSDP_OK;
    FSDP_TRY(fsdp_tokenizer_open(c->tokenizer, &in->tokenizer));
    return c->task == FSDP_TASK_CAUSAL_LM ? open_chat_template(c, in) : FSDP_OK;
}

/* ---- rows ---- */

/* Set the length limits that the user gave. As in `fsdp train`, if a limit was not given, texts are
 * cut to a default length by the dataset, and rows of ids are not cut. */
static void set_lengths(const fsdp_tokenize_config *c, fsdp_tokenize_inputs *in)
{
    fsdp_dataset_options *rows = &in->rows;
    rows->max_length = c->max_seq_length;
    if (c->task != FSDP_TASK_SEQ2SEQ)
        return;
    if (c->given.max_source_length)
        rows->max_source_length = c->max_source_length;
    if (c->given.max_target_length)
        rows->max_target_length = c->max_target_length;
}

static void set_rows(const fsdp_tokenize_config *c, fsdp_tokenize_inputs *in)
{
    static const fsdp_masking none = {.mask_token_id = -1};
    const bool masked = c->task == FSDP_TASK_MASKED_LM;
    fsdp_dataset_options *rows = &in->rows;
    rows->task = masked ? FSDP_TASK_CAUSAL_LM : (fsdp_task)c->task;
    rows->tokenizer = in->tokenizer;
    rows->source_prefix = c->task_prefix                                    ? c->task_prefix
                          : c->task == FSDP_TASK_SEQ2SEQ && !c->train_vocab ? "summarize: "
                                                                            : "";
    rows->source_column = c->text_column ? c->text_column : masked ? "text" : NULL;
    rows->target_column = c->target_column;
    rows->cleaning = (fsdp_cleaning)c->form.cleaning;
    if (c->wikihow_cleaning)
        rows->cleaning = FSDP_CLEANING_WIKIHOW;
    rows->no_eos = !c->append_eos;
    rows->no_special_tokens = !c->add_special_tokens;
    rows->max_samples = c->max_samples;
    rows->chat.chat_template = in->chat_template;
    rows->chat.why_no_template = *in->why_no_chat ? in->why_no_chat : NULL;
    fsdp_chat_row_options_apply(&c->chat, &rows->chat);
    fsdp_form_options_apply(&c->form, rows);
    rows->packing = FSDP_PACKING_NONE;
    set_lengths(c, in);
    in->form.task = (fsdp_task)c->task;
    in->form.rows = rows;
    if (masked)
        rows->masking = &none;
}

/* For classification, find out what the labels of the training data are, as `fsdp train` does. All
 * rows are then read in this way. Names of classes are moved to in->class_names. */
static fsdp_status find_classes(const fsdp_tokenize_config *c, fsdp_tokenize_inputs *in)
{
    fsdp_found_labels found;
    if (c->task != FSDP_TASK_CLASSIFICATION)
        return FSDP_OK;
    if (c->problem_type)
        in->rows.problem_type = (fsdp_problem_type)(c->problem_type - 1);
    fsdp_dataset_options options = in->rows;
    if (c->problem_type == 1 + FSDP_PROBLEM_SINGLE_LABEL)
        options.label_lists =
            FSDP_LABEL_LISTS_INDICES; /* lists are errors, whatever they contain */
    FSDP_TRY(fsdp_labels_find(c->data, &options, &found));
    /* If the labels do not fit the problem type that the user gave, reading the rows will return
     * the error, with a message that contains a label that does not fit. */
    if (c->problem_type && (int)found.problem_type != c->problem_type - 1) {
        fsdp_found_labels_fini(&found);
        in->rows.class_hint = "without --problem-type, the labels determine the problem type";
        return FSDP_OK;
    }
    in->class_names = found.names;
    in->n_classes = found.names ? (size_t)found.classes : 0;
    found.names = NULL;
    in->rows.class_names = (const char *const *)in->class_names;
    in->rows.num_classes = (int64_t)in->n_classes;
    /* Without a label in any row, there is nothing to find; reading the first row reports this. */
    if (found.problem_type != FSDP_PROBLEM_SINGLE_LABEL && found.classes) {
        in->rows.problem_type = found.problem_type;
        in->rows.num_classes = found.classes;
        /* Lists of the validation data are read like those of the training data. */
        in->rows.label_lists = found.lists;
    }
    fsdp_found_labels_fini(&found);
    return FSDP_OK;
}

/* Check in->rows, the options that say how rows are read. For causal and masked language models,
 * also fill in defaults, because src/tokenize reads their rows itself. For other tasks,
 * fsdp_dataset_open() fills in the defaults. */
static fsdp_status complete_rows(fsdp_tokenize_inputs *in)
{
    const bool causal = in->rows.task == FSDP_TASK_CAUSAL_LM;
    const fsdp_masking *masking = in->rows.masking;
    fsdp_dataset_options full;
    FSDP_TRY(fsdp_dataset_complete_options(&in->rows, &full));
    if (!causal)
        return FSDP_OK;
    if (!full.max_length)
        full.max_length = INT64_MAX;
    full.masking = masking;
    in->rows = full;
    return FSDP_OK;
}

static fsdp_status open_source(const fsdp_tokenize_config *c, fsdp_tokenize_inputs *in)
{
    const bool only_training =
        c->validation_fraction > 0 || c->train_vocab || c->check || fsdp_output_is_file(c->output);
    const fsdp_source_options options = {.data = c->data,
                                         .validation_data = c->validation_data,
                                         .find_validation = !only_training,
                                         .rows = &in->rows,
                                         .task = (fsdp_task)c->task,
                                         .max_samples = c->max_samples};
    return fsdp_record_source_open(&options, &in->source);
}

static fsdp_status open_inputs(const fsdp_tokenize_config *c, fsdp_tokenize_inputs *in)
{
    in->threads = c->threads ? c->threads : fsdp_available_cpus();
    FSDP_TRY(open_tokenizer(c, in));
    set_rows(c, in);
    FSDP_TRY(find_classes(c, in));
    FSDP_TRY(complete_rows(in));
    return open_source(c, in);
}

fsdp_status fsdp_tokenize_inputs_open(const fsdp_tokenize_config *config,
                                      fsdp_tokenize_inputs *inputs)
{
    *inputs = (fsdp_tokenize_inputs){0};
    const fsdp_status status = open_inputs(config, inputs);
    if (status != FSDP_OK)
        fsdp_tokenize_inputs_close(inputs);
    return status;
}

void fsdp_tokenize_inputs_close(fsdp_tokenize_inputs *in)
{
    fsdp_record_source_close(in->source);
    fsdp_chat_template_close(in->chat_template);
    fsdp_tokenizer_close(in->tokenizer);
    for (size_t i = 0; i < in->n_classes; i++)
        fsdp_free(in->class_names[i]);
    fsdp_free(in->class_names);
    *in = (fsdp_tokenize_inputs){0};
}

/* ---- the progress bar ---- */

fsdp_status fsdp_tokenize_bar(const fsdp_tokenize_config *config,
                              const fsdp_tokenize_inputs *inputs, const char *description,
                              fsdp_progress **bar)
{
    const int64_t bytes = fsdp_record_source_bytes(inputs->source);
    const fsdp_progress_options options = {.description = description, .total = bytes >> 20};
    const bool is_long = bytes ? bytes >= LONG_BYTES : fsdp_terminal_is(stderr);
    *bar = NULL;
    return config->progress && is_long ? fsdp_progress_create(&options, bar) : FSDP_OK;
}

/* ---- options without an effect ---- */

fsdp_status fsdp_tokenize_check_uses(const fsdp_tokenize_config *c, unsigned uses)
{
    const unsigned texts = FSDP_USES_TEXTS | FSDP_USES_DOCUMENTS;
    const struct {
        bool asked_for;
        unsigned use;
        const char *flag, *rows;
    } options[] = {
        {c->asked_for.task_prefix, FSDP_USES_SOURCE_PREFIX, "task-prefix", "rows that are texts"},
        {c->asked_for.text_column, FSDP_USES_SOURCE_COLUMN, "text-column", "rows that are texts"},
        {c->asked_for.target_column, FSDP_USES_TARGET_COLUMN, "target-column",
         "rows that are texts"},
        {c->asked_for.append_eos, texts, "append-eos", "texts"},
        {c->asked_for.add_special_tokens, texts, "add-special-tokens", "texts"},
    };
    fsdp_form_options form = c->form;
    /* for `fsdp tokenize`, --token-dtype is the type of the output, so it always has an effect */
    form.asked_for.token_dtype = false;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].asked_for && !(uses & options[i].use))
            return fsdp_error(FSDP_ERR_INVALID, "--%s is for %s; %s is something else",
                              options[i].flag, options[i].rows, c->data);
    FSDP_TRY(fsdp_form_options_check_uses(&form, uses, c->data));
    return fsdp_chat_row_options_check_uses(&c->chat, uses, c->data);
}
