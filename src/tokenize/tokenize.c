/* See tokenize.h. */
#include "src/tokenize/tokenize.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/io.h"
#include "src/data/rows/rows_form.h"
#include "src/report/human.h"
#include "src/text/special_in_text.h"
#include "src/text/unknown_in_text.h"
#include "src/tokenize/arrow_output.h"
#include "src/tokenize/identity.h"
#include "src/tokenize/pipeline.h"

typedef struct tokenize_run {
    const fsdp_tokenize_config *config;
    fsdp_tokenize_inputs *inputs;
    FILE *out;
    fsdp_tokenize_format format;
    int width; /* bytes of a token; 0: the output is an Arrow folder */
    fsdp_json *settings;
    fsdp_token_output *output;
    fsdp_tokenize_state state;
    fsdp_unused_keys unused;
    int64_t saved_bytes; /* size of the output when the journal was last written */
    /* with --resume: the numbers of records, tokens and bytes of text of the interrupted run;
     * otherwise 0 */
    int64_t first_record, first_tokens, first_bytes;
    fsdp_arrow_output_counts arrow;
    fsdp_progress *bar;
    int64_t bar_done; /* MiB */
    /* keep OUTPUT.partial although the run failed, because another run can use the rows in it */
    bool keeps;
    double began_s;
} tokenize_run;

static const char *const dtype_names[] = {
    [1] = "uint8", [2] = "uint16", [4] = "uint32", [8] = "int64"};

/* ---- the form of the output ---- */

static int64_t total_tokens(const tokenize_run *r)
{
    return r->state.parts[0].tokens + r->state.parts[1].tokens;
}

static int64_t output_bytes(const tokenize_run *r)
{
    return r->state.parts[0].bytes + r->state.parts[1].bytes;
}

static fsdp_status choose_format(tokenize_run *r)
{
    const fsdp_tokenize_config *c = r->config;
    const bool is_file = fsdp_output_is_file(c->output);
    r->format = (fsdp_tokenize_format)c->format;
    if (r->format == FSDP_TOKENIZE_AUTO)
        r->format = is_file ? FSDP_TOKENIZE_NANOGPT : FSDP_TOKENIZE_ARROW;
    if (r->format == FSDP_TOKENIZE_ARROW) {
        if (is_file)
            return fsdp_error(FSDP_ERR_INVALID,
                              "--output %s: --format arrow makes a folder, whose name must not end "
                              "in .bin",
                              c->output);
        if (c->form.asked_for.token_dtype)
            return fsdp_error(FSDP_ERR_INVALID, "--token-dtype is for token files (--format "
                                                "nanogpt or megatron), not for an Arrow folder");
        return FSDP_OK;
    }
    if (c->task == FSDP_TASK_SEQ2SEQ || c->task == FSDP_TASK_CLASSIFICATION)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--task %s needs --format arrow (an --output that does not end in .bin): "
                          "token files have no labels",
                          c->task == FSDP_TASK_SEQ2SEQ ? "seq2seq" : "classification");
    if (c->block_size)
        return fsdp_error(FSDP_ERR_INVALID, "--block-size is for --format arrow: token files are "
                                            "one stream, which 'fsdp train' cuts");
    return FSDP_OK;
}

/* Choose the number of bytes of a token in the output. */
static fsdp_status choose_width(tokenize_run *r)
{
    static const int widths[] = {
        [FSDP_TOKENS_U16] = 2, [FSDP_TOKENS_U8] = 1, [FSDP_TOKENS_I32] = 4, [FSDP_TOKENS_I64] = 8};
    const int64_t vocab_size = fsdp_tokenizer_vocab_size(r->inputs->tokenizer);
    const int dtype = r->config->form.token_dtype;
    if (r->format == FSDP_TOKENIZE_ARROW)
        return FSDP_OK;
    r->width = dtype != FSDP_TOKENS_DEFAULT ? widths[dtype] : vocab_size <= UINT16_MAX + 1 ? 2 : 4;
    if (r->width < 4 && vocab_size > (int64_t)1 << 8 * r->width)
        return fsdp_error(
            FSDP_ERR_INVALID, "--token-dtype %s: %s has %" PRId64 " ids, which need a larger type",
            dtype_names[r->width], fsdp_tokenizer_path(r->inputs->tokenizer), vocab_size);
    if (r->format == FSDP_TOKENIZE_LLMC && r->width != 2 && r->width != 4)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--token-dtype %s: files of llm.c have uint16 or uint32",
                          dtype_names[r->width]);
    return FSDP_OK;
}

/* ---- one batch ---- */

static fsdp_status create_encoded(void *self, void **result)
{
    (void)self;
    *result = fsdp_calloc(1, sizeof(fsdp_encoded));
    return *result ? FSDP_OK : FSDP_ERR_NOMEM;
}

static void destroy_encoded(void *result)
{
    if (result)
        fsdp_encoded_fini(result);
    fsdp_free(result);
}

static fsdp_status encode(void *self, const fsdp_record_batch *batch, void *result)
{
    return fsdp_encode_batch(&((tokenize_run *)self)->inputs->form, batch, result);
}

static fsdp_status collect_unused(fsdp_unused_keys *all, const fsdp_unused_keys *more)
{
    for (size_t i = 0; i < more->len; i++)
        FSDP_TRY(fsdp_collect_unused_key(more->items[i].name, more->items[i].line, all));
    all->more |= more->more;
    return FSDP_OK;
}

static void show_progress(tokenize_run *r)
{
    const int64_t done = (r->state.text_bytes - r->first_bytes) >> 20;
    fsdp_progress_update(r->bar, done - r->bar_done, "%s rows, %s tokens",
                         fsdp_human_count((double)r->state.records).text,
                         fsdp_human_count((double)total_tokens(r)).text);
    r->bar_done = done;
}

/* Write the result of a batch (fsdp_pipeline_ops.write). Even if this fails, r->state counts only
 * batches that were written completely. */
static fsdp_status write_batch(void *self, const fsdp_record_batch *batch, void *result)
{
    tokenize_run *r = self;
    fsdp_encoded *e = result;
    fsdp_tokenize_state state = r->state;
    FSDP_TRY(fsdp_output_append(r->output, e, &state));
    FSDP_TRY(collect_unused(&r->unused, &e->found.unused));
    state.records += (int64_t)batch->len;
    state.uses |= fsdp_jsonl_rows_uses(&e->found);
    r->state = state;
    show_progress(r);
    if (output_bytes(r) - r->saved_bytes < r->config->journal_bytes)
        return FSDP_OK;
    r->saved_bytes = output_bytes(r);
    return fsdp_output_save(r->output, &r->state);
}

static const fsdp_pipeline_ops tokenize_ops = {
    .create = create_encoded,
    .destroy = destroy_encoded,
    .work = encode,
    .write = write_batch,
};

/* ---- all rows ---- */

static fsdp_status refuse_empty(const tokenize_run *r)
{
    static const char *const names[] = {"training", "validation"};
    for (int i = 0; i < (fsdp_record_source_has_validation(r->inputs->source) ||
                                 r->config->validation_fraction > 0
                             ? 2
                             : 1);
         i++)
        if (r->state.parts[i].rows == 0)
            return fsdp_error(FSDP_ERR_INVALID,
                              "%s: none of its %" PRId64 " rows is for %s: choose another "
                              "--validation-fraction than %g",
                              r->config->data, r->state.records, names[i],
                              r->config->validation_fraction);
    return FSDP_OK;
}

static fsdp_status end_rows(tokenize_run *r)
{
    r->state.uses |= fsdp_record_source_uses(r->inputs->source);
    r->state.is_complete = true;
    return fsdp_output_save(r->output, &r->state);
}

/* Make the checks that are possible only after the last row. If an option had no effect, return an
 * error, but keep the rows. The user can then run the command again without this option and with
 * --resume, and the new run uses these rows, because they do not depend on the option. */
static fsdp_status check_rows(tokenize_run *r)
{
    const fsdp_status status = fsdp_tokenize_check_uses(r->config, r->state.uses);
    r->keeps = status == FSDP_ERR_INVALID;
    if (r->keeps)
        return fsdp_error(status, "%s (the rows are kept: without the option, --resume goes on)",
                          fsdp_last_error());
    return refuse_empty(r);
}

/* Return true if a run that failed with `status` can be continued with --resume. If the cause was
 * an error in the data, the run cannot be continued: the user must change the data, and the rows
 * that were already written may then be wrong. */
static bool can_go_on(fsdp_status status)
{
    return status == FSDP_ERR_STATE || status == FSDP_ERR_IO || status == FSDP_ERR_NOMEM;
}

/* Return words for a message that recommends --resume. If this run has --overwrite, the words say
 * that --resume must be given in its place, because the two options exclude each other. The journal
 * remembers that --overwrite was given. */
static const char *in_place_of(const tokenize_run *r)
{
    return r->config->overwrite ? " in place of --overwrite" : "";
}

/* If a run that failed with `status` can be continued, for example after a full disk, write the
 * journal, and add to the error message how to continue. */
static fsdp_status save_after_failure(tokenize_run *r, fsdp_status status)
{
    fsdp_saved_error error;
    if (!can_go_on(status) || r->state.records == r->first_record)
        return status;
    fsdp_error_save(status, &error);
    const fsdp_status saved = fsdp_output_save(r->output, &r->state);
    fsdp_error_restore(&error);
    return saved == FSDP_OK
               ? fsdp_error(status,
                            "%s (with --resume%s, the same command goes on after %" PRId64 " rows)",
                            error.message, in_place_of(r), r->state.records)
               : status;
}

static fsdp_status tokenize_rows(tokenize_run *r)
{
    bool stopped = false;
    FSDP_TRY(fsdp_record_source_skip(r->inputs->source, r->state.records));
    FSDP_TRY(fsdp_tokenize_bar(r->config, r->inputs, "tokenize (MiB)", &r->bar));
    fsdp_status status = fsdp_pipeline_run(&tokenize_ops, r, r->inputs->source, r->inputs->threads,
                                           r->config->interrupted, &stopped);
    fsdp_progress_destroy(r->bar);
    if (status != FSDP_OK)
        return save_after_failure(r, status);
    if (!stopped)
        return end_rows(r);
    FSDP_TRY(fsdp_output_save(r->output, &r->state));
    return fsdp_error(FSDP_ERR_STATE,
                      "interrupted after %" PRId64
                      " rows; with --resume%s, the same command goes on from there",
                      r->state.records, in_place_of(r));
}

/* If the output cannot be made, but the tokenized rows can be used again, add to the error message
 * how to do so. The rows can be used again in two cases: after an error of the system, and if there
 * is no whole block of --block-size tokens. */
static fsdp_status keep_rows(tokenize_run *r, fsdp_status status)
{
    const bool no_block = status == FSDP_ERR_INVALID && r->config->block_size;
    r->keeps = no_block;
    if (!no_block && !can_go_on(status))
        return status;
    return fsdp_error(status, "%s (the rows are kept: with --resume%s%s, the same command goes on)",
                      fsdp_last_error(), in_place_of(r),
                      no_block ? " and a smaller --block-size" : "");
}

static fsdp_status make_output(tokenize_run *r)
{
    const fsdp_tokenize_config *c = r->config;
    if (r->format != FSDP_TOKENIZE_ARROW)
        return fsdp_output_commit(r->output, &r->state);
    const fsdp_arrow_output_options options = {
        .path = c->output,
        .task = (fsdp_task)c->task,
        .has_validation =
            fsdp_record_source_has_validation(r->inputs->source) || c->validation_fraction > 0,
        .block_size = c->block_size,
        .class_names = (const char *const *)r->inputs->class_names,
        .n_classes = r->inputs->n_classes,
        .problem_type = r->inputs->rows.problem_type,
        .num_labels = r->inputs->rows.problem_type == FSDP_PROBLEM_SINGLE_LABEL
                          ? 0
                          : r->inputs->rows.num_classes,
    };
    return fsdp_arrow_output_write(&options, r->output, &r->state, &r->arrow);
}

/* ---- what is printed ---- */

static void print_lines(FILE *out, const char *text)
{
    if (text && *text)
        fprintf(out, "%s\n", text);
}

/* Print one line about the data that are not in the output, and why. These are tokens that were cut
 * off or do not fill a row, and the token_type_ids and position_ids of rows. Print nothing if the
 * output has everything. */
static void print_losses(const tokenize_run *r)
{
    const char *separator = "";
    const bool only_ids = r->format != FSDP_TOKENIZE_ARROW;
    const bool types = (only_ids || r->config->block_size) && r->state.lists[2];
    const bool positions = (only_ids || r->config->block_size) && r->state.lists[3];
    if (!r->state.cut_rows && !r->arrow.unused_tokens && !types && !positions)
        return;
    fprintf(r->out, "%s: ", r->config->data);
    if (r->state.cut_rows) {
        fprintf(r->out, "%" PRId64 " of %" PRId64 " rows are cut, by %" PRId64 " tokens",
                r->state.cut_rows, r->state.records, r->state.cut_tokens);
        separator = "; ";
    }
    if (r->arrow.unused_tokens) {
        fprintf(r->out, "%s%" PRId64 " tokens at the end do not fill a row of %" PRId64, separator,
                r->arrow.unused_tokens, r->config->block_size);
        separator = "; ";
    }
    if (types || positions)
        fprintf(r->out, "%s%s%s%s of the rows are left out, because %s", separator,
                types ? "token_type_ids" : "", types && positions ? " and " : "",
                positions ? "position_ids" : "",
                only_ids ? "token files have only ids; --format arrow keeps them"
                         : "--block-size joins rows");
    fprintf(r->out, "\n");
}

/* Print one line about special tokens in the texts of the data, if there are any. */
static void print_special(const tokenize_run *r)
{
    if (r->state.special_rows)
        fprintf(r->out,
                "%s: special tokens are in the texts of %" PRId64 " of %" PRId64
                " rows, first %s; " FSDP_SPECIAL_BECOMES_ID "\n",
                r->config->data, r->state.special_rows, r->state.records, r->state.special);
}

/* Print one line about characters that the tokenizer does not know, if there are any. */
static void print_unknown(const tokenize_run *r)
{
    char example[FSDP_UNKNOWN_BYTES + 1] = "";
    fsdp_text text = {example, sizeof example};
    if (!r->state.unknown_rows)
        return;
    fsdp_unknown_examples_print(&r->state.unknown_examples, &text);
    fprintf(r->out,
            "%s: %" PRId64 " of %" PRId64 " rows " FSDP_UNKNOWN_SAYS
            " %sin %s; " FSDP_UNKNOWN_BECOMES "\n",
            r->config->data, r->state.unknown_rows, r->state.records, example, r->state.unknown);
}

/* Return true if texts should end with eos, but the tokenizer has no eos. */
static bool lacks_eos(const tokenize_run *r)
{
    return r->config->task == FSDP_TASK_CAUSAL_LM && r->config->append_eos &&
           r->state.uses & (FSDP_USES_DOCUMENTS | FSDP_USES_TEXTS) &&
           fsdp_tokenizer_eos_id(r->inputs->tokenizer) < 0;
}

/* Return true if each document of plain text has become a row of the output. `fsdp train` would
 * instead join the documents and cut the result into blocks. */
static bool keeps_documents(const tokenize_run *r)
{
    return r->format == FSDP_TOKENIZE_ARROW && r->state.uses & FSDP_USES_DOCUMENTS &&
           !r->config->block_size;
}

/* Print what the labels of a classifier are, unless each row has one class. */
static void print_labels(const tokenize_run *r)
{
    const fsdp_dataset_options *rows = &r->inputs->rows;
    const int64_t n = rows->num_classes;
    if (r->config->task != FSDP_TASK_CLASSIFICATION ||
        rows->problem_type == FSDP_PROBLEM_SINGLE_LABEL)
        return;
    if (rows->problem_type == FSDP_PROBLEM_REGRESSION && n == 1)
        fprintf(r->out, "%s: labels are numbers, for regression: float32\n", r->config->data);
    else if (rows->problem_type == FSDP_PROBLEM_REGRESSION)
        fprintf(r->out, "%s: labels are lists of %" PRId64 " numbers, for regression: float32\n",
                r->config->data, n);
    else
        fprintf(r->out, "%s: %" PRId64 " classes, several a row: labels are a list of %s\n",
                r->config->data, n,
                r->inputs->n_classes ? "the row's classes (ClassLabel)"
                                     : "a 0.0 or 1.0 for each class (float32)");
}

static void print_notes(const tokenize_run *r, const char *unused)
{
    print_lines(r->out, fsdp_record_source_notes(r->inputs->source));
    print_labels(r);
    print_lines(r->out, unused);
    print_losses(r);
    print_special(r);
    print_unknown(r);
    if (keeps_documents(r))
        fprintf(r->out,
                "%s: each document is a row; 'fsdp train' joins and cuts plain text, which "
                "--block-size does here\n",
                r->config->data);
    if (fsdp_record_source_leaves_validation(r->inputs->source))
        fprintf(r->out, "%s: its part for validation is not used%s\n", r->config->data,
                r->config->validation_fraction > 0 ? ", as there is --validation-fraction" : "");
    if (r->state.empty_rows && r->format == FSDP_TOKENIZE_ARROW && !r->config->block_size)
        fprintf(r->out, "%s: %" PRId64 " rows have no tokens, and 'fsdp train' refuses such rows\n",
                r->config->data, r->state.empty_rows);
    if (lacks_eos(r))
        fprintf(r->out, "%s has no eos: nothing marks where a text ends\n",
                fsdp_tokenizer_path(r->inputs->tokenizer));
    if (r->state.masked_rows && r->format != FSDP_TOKENIZE_ARROW)
        fprintf(r->out, "%s: in %" PRId64 " rows %s; --format arrow keeps the labels\n",
                r->config->data, r->state.masked_rows,
                r->config->task == FSDP_TASK_MASKED_LM
                    ? "there are labels, which token files cannot have: 'fsdp train' masks all "
                      "rows, even those that have been masked"
                    : "a part has no loss, which token files cannot say: they are trained on as a "
                      "whole");
}

/* Print the format of the output, and how `fsdp train` reads it. */
static void print_output(const tokenize_run *r)
{
    static const char *const names[] = {[FSDP_TOKENIZE_NANOGPT] = "nanoGPT",
                                        [FSDP_TOKENIZE_LLMC] = "llm.c",
                                        [FSDP_TOKENIZE_MEGATRON] = "Megatron",
                                        [FSDP_TOKENIZE_ARROW] = "Arrow"};
    fprintf(r->out, "%s: %s", r->config->output, names[r->format]);
    if (r->format == FSDP_TOKENIZE_ARROW) {
        fprintf(r->out, ", %" PRId64 " rows", r->arrow.rows[0]);
        if (r->arrow.rows[1])
            fprintf(r->out, " and %" PRId64 " for validation", r->arrow.rows[1]);
    } else {
        fprintf(r->out, ", %s, %" PRId64 " tokens", dtype_names[r->width],
                r->state.parts[0].tokens);
        if (r->state.parts[1].rows)
            fprintf(r->out, " and %" PRId64 " for validation", r->state.parts[1].tokens);
    }
    if (r->format == FSDP_TOKENIZE_NANOGPT && r->width != 2)
        fprintf(r->out, "; read it with --token-dtype %s", dtype_names[r->width]);
    fprintf(r->out, "\n");
}

static void print_summary(const tokenize_run *r)
{
    const double seconds = fsdp_clock_s() - r->began_s;
    const int64_t tokens = total_tokens(r), now = tokens - r->first_tokens;
    fprintf(r->out, "%s: %" PRId64 " %s, %" PRId64 " tokens", r->config->data, r->state.records,
            r->state.uses & FSDP_USES_DOCUMENTS ? "documents" : "rows", tokens);
    if (r->state.uses & (FSDP_USES_DOCUMENTS | FSDP_USES_CSV) && r->state.text_bytes && tokens)
        fprintf(r->out, ", %.2f bytes a token", (double)r->state.text_bytes / (double)tokens);
    fprintf(r->out, "; %s, %s tokens/s\n", fsdp_human_duration(seconds).text,
            fsdp_human_count((double)now / (seconds > 0 ? seconds : 1)).text);
}

static fsdp_status print_end(tokenize_run *r)
{
    char *unused;
    FSDP_TRY(fsdp_record_source_unused(r->inputs->source, &r->unused, &unused));
    print_notes(r, unused);
    fsdp_free(unused);
    print_summary(r);
    print_output(r);
    return FSDP_OK;
}

/* ---- a run ---- */

static fsdp_status begin(tokenize_run *r)
{
    const fsdp_tokenize_config *c = r->config;
    unsigned possible;
    FSDP_TRY(choose_format(r));
    FSDP_TRY(choose_width(r));
    FSDP_TRY(fsdp_record_source_possible_uses(r->inputs->source, &possible));
    FSDP_TRY(fsdp_tokenize_check_uses(c, possible));
    r->inputs->form.width = r->width;
    r->inputs->form.seed = (uint64_t)c->seed;
    r->inputs->form.validation_below = (int64_t)llround(c->validation_fraction * 4294967296.0);
    FSDP_TRY(fsdp_tokenize_settings(c, r->inputs, r->format, r->width, &r->settings));
    const fsdp_output_options options = {
        .path = c->output,
        .format = r->format,
        .width = r->width,
        .has_validation =
            fsdp_record_source_has_validation(r->inputs->source) || c->validation_fraction > 0,
        .resume = c->resume,
        .overwrite = c->overwrite,
        .settings = fsdp_json_root(r->settings),
    };
    if (options.has_validation && fsdp_output_is_file(c->output))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--output %s is one file: with data for validation give a folder, for "
                          "train.bin and val.bin",
                          c->output);
    FSDP_TRY(fsdp_output_begin(&options, &r->state, &r->output));
    if (r->format == FSDP_TOKENIZE_ARROW)
        FSDP_TRY(fsdp_arrow_output_check(c->output));
    r->first_record = r->state.records;
    r->first_tokens = total_tokens(r);
    r->first_bytes = r->state.text_bytes;
    r->saved_bytes = output_bytes(r);
    return FSDP_OK;
}

static fsdp_status write_output(tokenize_run *r)
{
    FSDP_TRY(begin(r));
    if (r->first_record)
        fprintf(r->out, "%s: goes on after %" PRId64 " rows\n", r->config->output, r->first_record);
    if (!r->state.is_complete)
        FSDP_TRY(tokenize_rows(r));
    FSDP_TRY(check_rows(r));
    const fsdp_status status = make_output(r);
    if (status != FSDP_OK)
        return keep_rows(r, status);
    return print_end(r);
}

static fsdp_status tokenize(const fsdp_tokenize_config *config, fsdp_tokenize_inputs *inputs,
                            FILE *out)
{
    tokenize_run r = {.config = config, .inputs = inputs, .out = out, .began_s = fsdp_clock_s()};
    const fsdp_status status = write_output(&r);
    fsdp_output_close(r.output, can_go_on(status) || r.keeps);
    fsdp_unused_keys_fini(&r.unused);
    fsdp_json_destroy(r.settings);
    return status;
}

fsdp_status fsdp_tokenize_run(const fsdp_tokenize_config *config, FILE *out)
{
    fsdp_tokenize_inputs inputs;
    FSDP_TRY(fsdp_tokenize_inputs_open(config, &inputs));
    const fsdp_status status = config->check ? fsdp_tokenize_check(config, &inputs, out)
                               : config->train_vocab
                                   ? fsdp_tokenize_train_vocab(config, &inputs, out)
                                   : tokenize(config, &inputs, out);
    fsdp_tokenize_inputs_close(&inputs);
    return status;
}
