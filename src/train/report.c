/* Reports of a training run: lines at the start about the values that defaults have chosen, lines
 * of metrics, memory, and the tables and hints at the end. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/shown_text.h"
#include "src/comm/agree.h"
#include "src/comm/cards/cards.h"
#include "src/comm/comm.h"
#include "src/comm/group.h"
#include "src/data/datasets/dataset.h"
#include "src/data/left_out.h"
#include "src/data/rows/rows_form.h"
#include "src/report/human.h"
#include "src/report/metrics.h"
#include "src/report/progress.h"
#include "src/report/shell.h"
#include "src/report/table.h"
#include "src/tensor/cards.h"
#include "src/train/sources.h"
#include "src/train/trainer_internal.h"
#include "src/train_config/config_trainer.h"

void fsdp_trainer_print(const fsdp_trainer *t, const char *format, ...)
{
    va_list args;
    if (!t->out)
        return;
    fsdp_progress_clear(t->progress);
    va_start(args, format);
    vfprintf(t->out, format, args);
    va_end(args);
    fputc('\n', t->out);
    fflush(t->out);
}

/* --- lines at the start about the values that defaults have chosen --- */

/* Return the name that --lr-schedule uses for a kind of schedule. */
static const char *schedule_name(fsdp_lr_schedule_kind kind)
{
    static const char *const names[] = {[FSDP_LR_STEP] = "step",
                                        [FSDP_LR_LINEAR] = "linear",
                                        [FSDP_LR_COSINE] = "cosine",
                                        [FSDP_LR_CONSTANT] = "constant",
                                        [FSDP_LR_INVERSE_SQRT] = "inverse-sqrt",
                                        [FSDP_LR_POLYNOMIAL] = "polynomial",
                                        [FSDP_LR_COSINE_RESTARTS] = "cosine-with-restarts"};
    return names[kind];
}

static const char *unit_name(const fsdp_train_config *c)
{
    return c->schedule_unit == FSDP_SCHEDULE_EPOCH ? "epoch" : "step";
}

/* Print, on the line that print_rate() has begun, how the learning rate changes after the
 * warmup. */
static void print_change(const fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    const fsdp_lr_schedule *s = &t->schedule;
    switch (s->kind) {
    case FSDP_LR_STEP:
        fprintf(t->out, ", times %g ", s->gamma);
        if (s->step_size == 1)
            fprintf(t->out, "each %s", unit_name(c));
        else
            fprintf(t->out, "every %lld %ss", (long long)s->step_size, unit_name(c));
        break;
    case FSDP_LR_LINEAR:
    case FSDP_LR_COSINE:
    case FSDP_LR_POLYNOMIAL:
    case FSDP_LR_COSINE_RESTARTS:
        fprintf(t->out, ", falls to %g in %lld steps", s->min_lr, (long long)s->total_steps);
        break;
    case FSDP_LR_CONSTANT:
    case FSDP_LR_INVERSE_SQRT:
        break;
    }
}

static void print_rate(const fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    const fsdp_lr_schedule *s = &t->schedule;
    const int64_t warmup = fsdp_train_warmup_steps(c, t->total_steps);
    if (c->relative_step) {
        fprintf(t->out, "learning rate: chosen by Adafactor (--relative-step)\n");
        return;
    }
    fprintf(t->out, "learning rate: %g", s->lr);
    print_change(t);
    if (warmup > 0)
        fprintf(t->out, ", after a warmup of %lld step%s", (long long)warmup,
                warmup == 1 ? "" : "s");
    fprintf(t->out, " (--lr-schedule %s", schedule_name(s->kind));
    if (c->schedule_by_task)
        fprintf(t->out, ", the default of %s", fsdp_train_task_name(t->task));
    fputs(")\n", t->out);
}

/* If the learning rate of the last epoch is less than a tenth of the initial one, and the user did
 * not choose the schedule, print a note: the last epochs then hardly change the model. */
static void print_fallen_rate(const fsdp_trainer *t)
{
    fsdp_lr_schedule s = t->schedule;
    s.warmup_steps = 0;
    const double last = fsdp_lr_at(&s, s.total_steps - 1) / s.lr;
    if (!t->config->schedule_by_task || s.kind != FSDP_LR_STEP || !(last < 0.1))
        return;
    fprintf(t->out,
            "note: the learning rate falls by a factor of %g each epoch, to %.2g of %g in the last "
            "one; --lr-schedule linear or constant keeps it higher\n",
            s.gamma, last, s.lr);
}

/* Print which text is put before each source text, unless the user gave this text with
 * --task-prefix. */
static void print_prefix(const fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    if (t->task != FSDP_TASK_SEQ2SEQ || c->given_task_prefix || !fsdp_train_uses_prefix(t))
        return;
    const fsdp_shown_text prefix = fsdp_show_text(c->task_prefix);
    if (t->resumed_prefix)
        fprintf(t->out,
                "as in the run that is resumed, %s%s%s is put before each source text; "
                "--task-prefix TEXT changes it\n",
                *c->task_prefix ? "'" : "", *c->task_prefix ? prefix.text : "nothing",
                *c->task_prefix ? "'" : "");
    else if (t->model->text_prefix && !*c->task_prefix)
        fprintf(t->out,
                "config.json of %s: nothing is put before source texts; --task-prefix TEXT puts "
                "TEXT there\n",
                c->model);
    else if (t->model->text_prefix)
        fprintf(t->out,
                "config.json of %s: '%s' is put before each source text; --task-prefix '' puts "
                "nothing there\n",
                c->model, prefix.text);
    else if (*c->task_prefix)
        fprintf(
            t->out,
            "'%s' is put before each source text, the default of seq2seq; --task-prefix '' puts "
            "nothing there\n",
            prefix.text);
}

void fsdp_report_start(const fsdp_trainer *t)
{
    print_rate(t);
    print_fallen_rate(t);
    print_prefix(t);
}

/* --- memory --- */

/* Move the process numbers of the ranks on this host to the beginning of all [world_size], and
 * return how many there are. Ranks that are threads of one process have the same number, which is
 * counted once. Leave out the ranks on other hosts, because their numbers mean nothing on this
 * host. */
static size_t keep_processes_of_host(const fsdp_group *group, pid_t *all)
{
    size_t n = 0;
    for (int r = 0; r < fsdp_group_world_size(group); r++) {
        size_t k = 0;
        while (k < n && all[k] != all[r])
            k++;
        if (k == n && (!group || fsdp_group_is_here(group, r)))
            all[n++] = all[r];
    }
    return n;
}

/* Create the sampler of host memory. It covers the processes of all ranks on this host and their
 * child processes. Collective. */
static fsdp_status open_hostmem(fsdp_trainer *t)
{
    const int world_size = fsdp_group_world_size(t->group);
    pid_t mine = getpid(), *all = fsdp_calloc((size_t)world_size, sizeof *all);
    fsdp_status status =
        fsdp_agree_gather(t->group, all ? FSDP_OK : FSDP_ERR_NOMEM, &mine, sizeof mine, all);
    if (status == FSDP_OK)
        status = fsdp_agree(
            t->group, fsdp_hostmem_create(all, keep_processes_of_host(t->group, all), &t->hostmem));
    fsdp_free(all);
    return status;
}

fsdp_status fsdp_report_sample_memory(fsdp_trainer *t)
{
    fsdp_status status = FSDP_OK;
    if (!t->hostmem)
        FSDP_TRY(open_hostmem(t));
    if (fsdp_group_leads_host(t->group, fsdp_group_rank(t->group)))
        status = fsdp_hostmem_sample(t->hostmem, NULL);
    return fsdp_agree(t->group, status); /* no rank frees memory before the samples are taken */
}

static void fill_memory(fsdp_json_node memory, const fsdp_memory_stats *stats)
{
    fsdp_json_set_i64(memory, "allocated", stats->allocated_peak);
    fsdp_json_set_i64(memory, "reserved", stats->reserved_peak);
    for (int tag = 0; tag < FSDP_TAG_COUNT; tag++)
        fsdp_json_set_i64(memory, fsdp_tag_name((fsdp_tag)tag), stats->tag_peak[tag]);
}

/* --- metrics --- */

static void set_loss(fsdp_json_node line, const fsdp_trainer *t, int64_t epoch,
                     const fsdp_step_result *result, double seconds)
{
    fsdp_json_set_i64(line, "step", t->step);
    fsdp_json_set_i64(line, "epoch", epoch + 1);
    fsdp_metrics_set_number(line, "loss", result->loss);
    fsdp_json_set_i64(line, "tokens", result->tokens);
    fsdp_json_set_i64(line, "label_tokens", result->labels);
    fsdp_metrics_set_number(line, "seconds", seconds);
    fsdp_metrics_set_number(line, "tokens_per_s", (double)result->tokens / seconds);
}

fsdp_status fsdp_report_step(fsdp_trainer *t, const fsdp_step_result *result, double lr,
                             double seconds, int64_t epoch)
{
    if (!t->tracking)
        return FSDP_OK;
    fsdp_json_node line;
    fsdp_memory_stats stats;
    fsdp_device_memory(t->device, &stats);
    FSDP_TRY(fsdp_tracking_begin(t->tracking, "step", &line));
    set_loss(line, t, epoch, result, seconds);
    fsdp_metrics_set_number(line, "grad_norm", result->grad_norm);
    fsdp_metrics_set_number(line, "lr", lr);
    if (t->loop.scaler) {
        fsdp_metrics_set_number(line, "loss_scale", result->loss_scale);
        fsdp_json_set_bool(line, "skipped", result->skipped);
    }
    fill_memory(fsdp_json_set_object(line, "memory_peak"), &stats);
    return fsdp_tracking_write(t->tracking);
}

fsdp_status fsdp_report_validation(fsdp_trainer *t, const fsdp_step_result *result, double seconds,
                                   int64_t epoch, const fsdp_rouge *rouge, double length)
{
    size_t n;
    const fsdp_measure_field *fields = fsdp_trainer_measures(t, &n);
    if (!t->tracking)
        return FSDP_OK;
    fsdp_json_node line;
    FSDP_TRY(fsdp_tracking_begin(t->tracking, "validation", &line));
    set_loss(line, t, epoch, result, seconds);
    if (fsdp_train_has_perplexity(t->task))
        fsdp_metrics_set_number(line, "perplexity", exp(result->loss));
    for (size_t i = 0; i < n; i++)
        fsdp_metrics_set_number(line, fields[i].key,
                                fsdp_measure_get(&result->measures, &fields[i]));
    if (rouge) {
        fsdp_metrics_set_number(line, "rouge1", rouge->rouge1.fmeasure);
        fsdp_metrics_set_number(line, "rouge2", rouge->rouge2.fmeasure);
        fsdp_metrics_set_number(line, "rougeL", rouge->rougeL.fmeasure);
        fsdp_metrics_set_number(line, "rougeLsum", rouge->rougeLsum.fmeasure);
        fsdp_metrics_set_number(line, "gen_len", length);
    }
    return fsdp_tracking_write(t->tracking);
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

fsdp_status fsdp_report_checkpoint(fsdp_trainer *t, const fsdp_checkpoint_report *r)
{
    fsdp_checkpoint_report *slowest = &t->slowest;
    fsdp_json_node line;
    t->n_saved++;
    slowest->call_s = larger(slowest->call_s, r->call_s);
    slowest->step_s = larger(slowest->step_s, r->step_s);
    slowest->held_s = larger(slowest->held_s, r->held_s);
    if (!t->tracking)
        return FSDP_OK;
    FSDP_TRY(fsdp_tracking_begin(t->tracking, "checkpoint", &line));
    fsdp_json_set_i64(line, "step", r->step);
    fsdp_metrics_set_number(line, "seconds", r->seconds);
    fsdp_metrics_set_number(line, "step_seconds", r->step_s);
    fsdp_metrics_set_number(line, "call_seconds", r->call_s);
    fsdp_metrics_set_number(line, "held_seconds", r->held_s);
    fsdp_json_set_i64(line, "copied_bytes", (int64_t)r->copied_bytes);
    return fsdp_tracking_write(t->tracking);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Return the median of the seconds per step. If there are more than two steps, leave out the first
 * step, since it includes the warm-up. */
static double median_step(const fsdp_trainer *t)
{
    size_t n = (size_t)(t->step - t->first_step), skip = n > 2 ? 1 : 0;
    if (!n)
        return (double)NAN;
    double *sorted = fsdp_calloc(n, sizeof *sorted);
    if (!sorted)
        return (double)NAN;
    for (size_t i = skip; i < n; i++)
        sorted[i - skip] = t->step_seconds[i];
    qsort(sorted, n - skip, sizeof *sorted, compare_doubles);
    double median = sorted[(n - skip) / 2];
    fsdp_free(sorted);
    return median;
}

/* Add to `line` an object `key` with four kinds of numbers about `set`: rows and tokens that
 * training does not use, rows and tokens that it has cut, rows with special tokens in their texts,
 * and rows with unknown characters. No effect if `set` is NULL. */
static fsdp_status add_left_out(fsdp_json_node line, const char *key, const fsdp_dataset *set)
{
    fsdp_left_out out;
    if (!set)
        return FSDP_OK;
    FSDP_TRY(fsdp_dataset_left_out(set, FSDP_LEFT_OUT_ROWS, &out));
    fsdp_json_node object = fsdp_json_set_object(line, key);
    fsdp_json_set_i64(object, "counted_rows", out.counted_rows);
    fsdp_json_set_i64(object, "cut_rows", out.cut_rows);
    fsdp_json_set_i64(object, "cut_tokens", out.cut_tokens);
    fsdp_json_set_i64(object, "skipped_rows", out.skipped_rows);
    fsdp_json_set_i64(object, "unused_tokens", out.unused_tokens);
    fsdp_json_set_i64(object, "special_rows", out.special_rows);
    fsdp_json_set_i64(object, "unknown_rows", out.unknown_rows);
    return FSDP_OK;
}

static fsdp_status summary_line(fsdp_trainer *t, const fsdp_memory_stats *ranks, double host_mib)
{
    if (!t->tracking)
        return FSDP_OK;
    fsdp_json_node line;
    FSDP_TRY(fsdp_tracking_begin(t->tracking, "summary", &line));
    fsdp_json_set_i64(line, "step", t->step);
    fsdp_json_set_i64(line, "world_size", fsdp_group_world_size(t->group));
    fsdp_metrics_set_number(line, "train_loss", t->result->train_loss);
    fsdp_metrics_set_number(line, "validation_loss", t->result->validation_loss);
    fsdp_metrics_set_number(line, "best_validation_loss", t->result->best_validation_loss);
    fsdp_metrics_set_number(line, "step_s", median_step(t));
    fsdp_metrics_set_number(line, "total_s", fsdp_clock_s() - t->started_s);
    fsdp_metrics_set_number(line, "peak_host_mib", host_mib);
    fill_memory(fsdp_json_set_object(line, "memory_peak"), &ranks[0]);
    fsdp_json_node by_rank = fsdp_json_set_array(line, "memory_peak_by_rank");
    for (int r = 0; r < fsdp_group_world_size(t->group); r++)
        fill_memory(fsdp_json_append_object(by_rank), &ranks[r]);
    FSDP_TRY(add_left_out(line, "left_out", t->train_set));
    FSDP_TRY(add_left_out(line, "validation_left_out", t->validation_set));
    return fsdp_tracking_write(t->tracking);
}

/* --- tables --- */

/* The table of epochs has some columns for the measures of this task, such as accuracy. Set
 * `headings` to the headings of these columns, and return their number. */
static size_t metric_columns(const fsdp_trainer *t, const char *headings[FSDP_MEASURE_FIELDS_MAX])
{
    size_t n;
    const fsdp_measure_field *fields = fsdp_trainer_measures(t, &n);
    for (size_t i = 0; i < n; i++)
        headings[i] = fields[i].heading;
    if (!fsdp_train_has_perplexity(t->task))
        return n;
    headings[0] = "perplexity";
    return 1;
}

/* Add a cell with `value`, a result of the validation of epoch `e`, or with "-" if this epoch had
 * no validation. */
static void validation_cell(fsdp_table *table, const fsdp_epoch_record *e, double value)
{
    if (isnan(e->validation_loss))
        fsdp_table_cell(table, "-");
    else if (value < 1e6)
        fsdp_table_cell(table, "%.4f", value);
    else
        fsdp_table_cell(table, "%.4g", value); /* a perplexity may have any magnitude */
}

static void epoch_row(const fsdp_trainer *t, fsdp_table *table, size_t i)
{
    const fsdp_epoch_record *e = &t->epochs[i];
    size_t n;
    const fsdp_measure_field *fields = fsdp_trainer_measures(t, &n);
    fsdp_table_row(table);
    fsdp_table_cell(table, "%zu", i + 1);
    if (isfinite(e->train_loss))
        fsdp_table_cell(table, "%.4f", e->train_loss);
    else
        fsdp_table_cell(table, "%s", fsdp_human_not_finite(e->train_loss));
    validation_cell(table, e, e->validation_loss);
    if (fsdp_train_has_perplexity(t->task))
        validation_cell(table, e, exp(e->validation_loss));
    for (size_t k = 0; k < n; k++)
        validation_cell(table, e, fsdp_measure_get(&e->measures, &fields[k]));
    fsdp_table_cell(table, "%s", fsdp_human_duration(e->seconds).text);
    fsdp_table_cell(table, "%.0f", e->tokens_per_s);
    fsdp_table_cell(table, "%s", e->saved ? "yes" : "");
}

static fsdp_status print_epochs(const fsdp_trainer *t)
{
    static const char *const before[] = {"epoch", "train loss", "validation loss"};
    static const char *const after[] = {"time", "tokens/s", "saved"};
    const char *of_task[FSDP_MEASURE_FIELDS_MAX];
    const size_t n = metric_columns(t, of_task);
    fsdp_table *table;
    FSDP_TRY(fsdp_table_create(6 + n, &table));
    for (size_t i = 0; i < 3; i++) {
        fsdp_table_column(table, i, before[i], FSDP_TABLE_RIGHT);
        fsdp_table_column(table, 3 + n + i, after[i], FSDP_TABLE_RIGHT);
    }
    for (size_t i = 0; i < n; i++)
        fsdp_table_column(table, 3 + i, of_task[i], FSDP_TABLE_RIGHT);
    for (size_t i = 0; i < t->n_epochs; i++)
        epoch_row(t, table, i);
    fsdp_status status = fsdp_table_print(table, t->out, FSDP_TABLE_AUTO);
    fsdp_table_destroy(table);
    return status;
}

static fsdp_status print_memory(const fsdp_trainer *t, const fsdp_memory_stats *ranks)
{
    fsdp_table *table;
    char device[256];
    fsdp_device_describe(t->device, device);
    if (*fsdp_group_card_exchange(t->group))
        fprintf(t->out, "memory of each rank's card:\n");
    else if (fsdp_device_name_is_cuda(device))
        fprintf(t->out, "memory of %s:\n", device);
    FSDP_TRY(fsdp_table_create(FSDP_TAG_COUNT + 3, &table));
    fsdp_table_column(table, 0, "peak memory", FSDP_TABLE_LEFT);
    for (int tag = 0; tag < FSDP_TAG_COUNT; tag++)
        fsdp_table_column(table, (size_t)tag + 1, fsdp_tag_name((fsdp_tag)tag), FSDP_TABLE_RIGHT);
    fsdp_table_column(table, FSDP_TAG_COUNT + 1, "allocated", FSDP_TABLE_RIGHT);
    fsdp_table_column(table, FSDP_TAG_COUNT + 2, "reserved", FSDP_TABLE_RIGHT);
    for (int r = 0; r < fsdp_group_world_size(t->group); r++) {
        fsdp_table_row(table);
        fsdp_table_cell(table, "rank %d", r);
        for (int tag = 0; tag < FSDP_TAG_COUNT; tag++)
            fsdp_table_cell(table, "%s", fsdp_human_bytes(ranks[r].tag_peak[tag]).text);
        fsdp_table_cell(table, "%s", fsdp_human_bytes(ranks[r].allocated_peak).text);
        fsdp_table_cell(table, "%s", fsdp_human_bytes(ranks[r].reserved_peak).text);
    }
    fsdp_status status = fsdp_table_print(table, t->out, FSDP_TABLE_AUTO);
    fsdp_table_destroy(table);
    return status;
}

static void print_saves(const fsdp_trainer *t)
{
    const bool async = t->config->async_save;
    fprintf(t->out,
            "%lld checkpoint%s written%s: a step that triggers one took at most %s, %s of it for "
            "the %s",
            (long long)t->n_saved, t->n_saved == 1 ? "" : "s", async ? " during training" : "",
            fsdp_human_duration(t->slowest.step_s).text,
            fsdp_human_duration(t->slowest.call_s).text, async ? "call" : "checkpoint");
    if (async)
        fprintf(t->out, "; copies and waiting in later steps at most %s",
                fsdp_human_duration(t->slowest.held_s).text);
    fputc('\n', t->out);
}

/* Print the number of steps, their time, and the memory of all processes, in bytes. If this run was
 * resumed, earlier runs have done some of the steps. Time and memory are those of this run only. */
static void print_steps(const fsdp_trainer *t, int64_t host)
{
    const int64_t now = t->step - t->first_step;
    fprintf(t->out, "%lld step%s", (long long)t->step, t->step == 1 ? "" : "s");
    if (t->first_step)
        fprintf(t->out, ", %lld of them in this run", (long long)now);
    if (now)
        fprintf(t->out, ", median %s each", fsdp_human_duration(median_step(t)).text);
    fprintf(t->out, "; host memory of all ranks %s at most; %s in all\n",
            fsdp_human_bytes(host).text, fsdp_human_duration(fsdp_clock_s() - t->started_s).text);
}

/* Print the summary. `host` is the memory of all processes, in bytes. */
static fsdp_status print_summary(fsdp_trainer *t, const fsdp_memory_stats *ranks, int64_t host)
{
    FSDP_TRY(summary_line(t, ranks, (double)host / 1048576.0));
    if (!t->out)
        return FSDP_OK;
    fputc('\n', t->out);
    if (t->n_epochs)
        FSDP_TRY(print_epochs(t));
    if (t->n_epochs && t->first_step >= t->steps_per_epoch)
        fprintf(t->out,
                "epochs that ended by step %lld are those of the run that was resumed: what it "
                "saved is in its own --output\n",
                (long long)t->first_step);
    if (t->n_epochs && !t->config->validation_data)
        fprintf(t->out, "no validation loss: --validation-data FILE names rows to measure it on\n");
    if (t->config->track_memory)
        FSDP_TRY(print_memory(t, ranks));
    if (t->offload)
        fprintf(t->out, "activation offload: at most %s in the file of rank 0\n",
                fsdp_human_bytes(fsdp_activation_offload_peak(t->offload)).text);
    if (t->profile) {
        FSDP_TRY(fsdp_profile_print(t->profile, t->out));
        fprintf(t->out, "trace: %s (chrome://tracing, https://ui.perfetto.dev)\n",
                t->config->profile);
    }
    print_steps(t, host);
    if (t->n_saved)
        print_saves(t);
    if (t->result->skipped_steps > t->result->overflowed_forwards)
        fprintf(t->out, "%lld of the steps updated nothing: gradients overflowed (float16)\n",
                (long long)(t->result->skipped_steps - t->result->overflowed_forwards));
    if (t->result->overflowed_forwards)
        fprintf(t->out, "%lld of the steps updated nothing: their loss was not finite\n",
                (long long)t->result->overflowed_forwards);
    return FSDP_OK;
}

/* Set *bytes to the sum of the peaks of host memory of all hosts. Collective. */
static fsdp_status add_host_memory(const fsdp_trainer *t, int64_t *bytes)
{
    /* fsdp_report_sample_memory() takes samples on the first rank of each host. */
    const bool samples = fsdp_group_leads_host(t->group, fsdp_group_rank(t->group));
    *bytes = samples ? fsdp_hostmem_peak(t->hostmem, NULL).total_bytes : 0;
    return t->group ? fsdp_all_reduce(t->group, bytes, 1, FSDP_DTYPE_I64, FSDP_REDUCE_SUM)
                    : FSDP_OK;
}

fsdp_status fsdp_report_summary(fsdp_trainer *t)
{
    int64_t host = 0;
    fsdp_memory_stats mine;
    fsdp_memory_stats *ranks = fsdp_calloc((size_t)fsdp_group_world_size(t->group), sizeof *ranks);
    fsdp_device_memory(t->device, &mine);
    fsdp_status status =
        fsdp_agree_gather(t->group, ranks ? FSDP_OK : FSDP_ERR_NOMEM, &mine, sizeof mine, ranks);
    if (status == FSDP_OK)
        status = add_host_memory(t, &host);
    if (status == FSDP_OK && fsdp_trainer_is_first(t))
        status = print_summary(t, ranks, host);
    fsdp_free(ranks);
    return status;
}

/* --- the command that generates a text with the saved model --- */

/* Append the command that generates a text with the saved model. */
static void append_command(const fsdp_trainer *t, fsdp_str *command)
{
    const fsdp_train_config *c = t->config;
    fsdp_shell_own_program(command);
    fsdp_str_printf(command, " generate --model ");
    fsdp_shell_word(command, c->output);
    if (fsdp_dataset_uses(t->train_set) & FSDP_USES_CHAT)
        fsdp_str_printf(command, " --chat");
    /* The command needs the prefix for a causal model only. For a seq2seq model, `fsdp generate`
     * finds the prefix in config.json. */
    if (t->task == FSDP_TASK_CAUSAL_LM && *c->task_prefix && fsdp_train_uses_prefix(t)) {
        fsdp_str_printf(command, " --task-prefix ");
        fsdp_shell_quote(command, c->task_prefix, false);
    }
    fsdp_str_printf(command, " 'your text'");
}

fsdp_status fsdp_report_next(const fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    fsdp_str command = {0};
    if (!t->out || !c->save_model || !t->tokenizer.tokenizer ||
        c->task == FSDP_TRAIN_SPAN_CORRUPTION ||
        (t->task != FSDP_TASK_SEQ2SEQ && t->task != FSDP_TASK_CAUSAL_LM))
        return FSDP_OK;
    append_command(t, &command);
    const fsdp_status status = command.failed ? fsdp_error_nomem() : FSDP_OK;
    if (status == FSDP_OK)
        fprintf(t->out, "try it: %s\n", command.data);
    fsdp_str_fini(&command);
    return status;
}
