/* Prints estimates of steps on many hosts as a table and as JSON. */
#include <errno.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/json.h"
#include "src/plan/scale.h"
#include "src/report/human.h"
#include "src/report/table.h"

/* --- the table --- */

static const char *const headings[] = {"ranks", "hosts", "step", "compute", "gather waits",
                                       "reduce waits", "other waits", "efficiency", "tokens/s",
                                       "a host sends", "one rank",
                                       /* only with stragglers */
                                       "stragglers", "step, 50 %", "step, 90 %", "step, 99 %"};

enum {
    STRAGGLER_QUANTILES = 3,
    STRAGGLER_COLUMNS = 1 + STRAGGLER_QUANTILES
};

static size_t columns_of(const fsdp_scale_report *r)
{
    return FSDP_LENGTH(headings) - (r->options->straggler > 0.0 ? 0 : STRAGGLER_COLUMNS);
}

static void seconds_cell(fsdp_table *table, double seconds)
{
    fsdp_table_cell(table, "%s", fsdp_human_duration(seconds).text);
}

static void add_row(fsdp_table *table, const fsdp_scale_report *r, const fsdp_scale_estimate *e)
{
    fsdp_table_row(table);
    fsdp_table_cell(table, "%d", e->world_size);
    fsdp_table_cell(table, "%d", e->hosts);
    seconds_cell(table, e->straggler_step_s);
    seconds_cell(table, e->compute_s);
    seconds_cell(table, e->exposed_gather_s);
    seconds_cell(table, e->exposed_reduce_s + e->exposed_all_reduce_s);
    seconds_cell(table, e->exposed_small_s);
    fsdp_table_cell(table, "%.1f %%", 100.0 * e->efficiency);
    fsdp_table_cell(table, "%s", fsdp_human_count(e->tokens_per_s).text);
    fsdp_table_cell(table, "%s", fsdp_human_bytes((int64_t)e->host_sent_bytes).text);
    fsdp_table_cell(table, "%s", fsdp_human_bytes(e->rank_bytes).text);
    if (!(r->options->straggler > 0.0))
        return;
    seconds_cell(table, e->straggler_step_s - e->step_s);
    for (int i = 0; i < STRAGGLER_QUANTILES; i++)
        seconds_cell(table, e->straggler_quantile_s[i]);
}

/* If --reshard-after-forward is a number, return it: backward gathers a unit among only this number
 * of ranks. Otherwise return 0. */
static int kept_ranks(const fsdp_plan *p)
{
    int ranks = 0;
    for (size_t i = 0; i < p->n_units && !ranks; i++)
        ranks = p->units[i].kept_ranks;
    return ranks;
}

/* Return true if several hosts are estimated, and backward's gathers send nothing between them. */
static bool gathers_once(const fsdp_scale_report *r)
{
    bool has_hosts = false, gathers_again = false;
    for (size_t i = 0; i < r->n; i++) {
        has_hosts |= r->estimates[i].hosts > 1;
        gathers_again |= r->estimates[i].backward_gather_bytes > 0.0;
    }
    return has_hosts && !gathers_again;
}

static void print_assumptions(const fsdp_scale_report *r, FILE *out)
{
    const fsdp_scale_options *o = r->options;
    const fsdp_plan *p = r->plan;
    fprintf(out, "%s, %s, estimated: a rank has %lld x %lld", p->class_name, r->strategy,
            (long long)p->rows, (long long)p->source_length);
    if (p->target_length)
        fprintf(out, " + %lld", (long long)p->target_length);
    fprintf(out, " tokens in %d micro-step%s, %sFLOP in products\n", p->micro_steps,
            p->micro_steps == 1 ? "" : "s", fsdp_human_count(p->flops).text);
    fprintf(out, "a rank computes %sFLOP/s (%s); a host sends %sbit/s, a message takes %s\n",
            fsdp_human_count(o->flops_per_s).text, r->flops_source,
            fsdp_human_count(8.0 * o->interconnect.bytes_per_s).text,
            fsdp_human_duration(o->interconnect.latency_s).text);
    if (kept_ranks(p))
        fprintf(out, "after forward, %d ranks keep the parameters of a unit\n", kept_ranks(p));
    if (gathers_once(r))
        fprintf(out,
                "a host keeps what forward gathers: backward gathers nothing from other hosts\n");
    if (p->set_internode_reduce_dtype)
        fprintf(out, "gradients cross between hosts in %s\n",
                fsdp_dtype_name(p->internode_reduce_dtype));
    if (o->straggler > 0.0)
        fprintf(out,
                "the compute time of a rank varies by %g %% from step to step; 'step' is the "
                "mean\n",
                100.0 * o->straggler);
}

fsdp_status fsdp_scale_print(const fsdp_scale_report *r, FILE *out)
{
    const size_t columns = columns_of(r);
    fsdp_table *table;
    FSDP_TRY(fsdp_table_create(columns, &table));
    for (size_t i = 0; i < columns; i++)
        fsdp_table_column(table, i, headings[i], FSDP_TABLE_RIGHT);
    for (size_t i = 0; i < r->n; i++)
        add_row(table, r, &r->estimates[i]);
    print_assumptions(r, out);
    fsdp_status status = fsdp_table_print(table, out, FSDP_TABLE_AUTO);
    fsdp_table_destroy(table);
    if (status == FSDP_OK && ferror(out))
        status = fsdp_error(FSDP_ERR_IO, "printing the estimate: %s", strerror(errno));
    return status;
}

/* --- JSON --- */

static void set_estimate(fsdp_json_node o, const fsdp_scale_estimate *e)
{
    static const char *const quantiles[] = {"step_p50_s", "step_p90_s", "step_p99_s"};
    fsdp_json_set_i64(o, "world_size", e->world_size);
    fsdp_json_set_i64(o, "local_world_size", e->local_world_size);
    fsdp_json_set_i64(o, "hosts", e->hosts);
    fsdp_json_set_f64(o, "step_s", e->straggler_step_s);
    fsdp_json_set_f64(o, "step_without_stragglers_s", e->step_s);
    fsdp_json_set_f64(o, "compute_s", e->compute_s);
    fsdp_json_set_f64(o, "exposed_gather_s", e->exposed_gather_s);
    fsdp_json_set_f64(o, "exposed_reduce_s", e->exposed_reduce_s);
    fsdp_json_set_f64(o, "exposed_all_reduce_s", e->exposed_all_reduce_s);
    fsdp_json_set_f64(o, "exposed_small_s", e->exposed_small_s);
    fsdp_json_set_f64(o, "efficiency", e->efficiency);
    fsdp_json_set_f64(o, "tokens_per_s", e->tokens_per_s);
    fsdp_json_set_f64(o, "host_sent_bytes", e->host_sent_bytes);
    fsdp_json_set_f64(o, "backward_gather_bytes", e->backward_gather_bytes);
    fsdp_json_set_f64(o, "flops", e->flops);
    fsdp_json_set_i64(o, "rank_bytes", e->rank_bytes);
    for (size_t i = 0; i < FSDP_LENGTH(quantiles); i++)
        fsdp_json_set_f64(o, quantiles[i], e->straggler_quantile_s[i]);
}

static void fill_json(const fsdp_scale_report *r, fsdp_json_node root)
{
    const fsdp_scale_options *o = r->options;
    fsdp_json_set_str(root, "model", r->plan->class_name);
    fsdp_json_set_str(root, "sharding_strategy", r->strategy);
    fsdp_json_set_i64(root, "kept_ranks", kept_ranks(r->plan));
    fsdp_json_set_i64(root, "numel", r->plan->numel);
    fsdp_json_set_i64(root, "batch_size", r->plan->rows);
    fsdp_json_set_i64(root, "source_length", r->plan->source_length);
    fsdp_json_set_i64(root, "target_length", r->plan->target_length);
    fsdp_json_set_i64(root, "gradient_accumulation_steps", r->plan->micro_steps);
    fsdp_json_set_f64(root, "flops_per_rank", o->flops_per_s);
    fsdp_json_set_str(root, "flops_per_rank_source", r->flops_source);
    fsdp_json_set_f64(root, "interconnect_bytes_per_s", o->interconnect.bytes_per_s);
    fsdp_json_set_f64(root, "interconnect_latency_s", o->interconnect.latency_s);
    fsdp_json_set_f64(root, "straggler", o->straggler);
    if (r->plan->set_internode_reduce_dtype)
        fsdp_json_set_str(root, "internode_reduce_dtype",
                          fsdp_dtype_name(r->plan->internode_reduce_dtype));
    fsdp_json_node list = fsdp_json_set_array(root, "estimates");
    for (size_t i = 0; i < r->n; i++)
        set_estimate(fsdp_json_append_object(list), &r->estimates[i]);
}

fsdp_status fsdp_scale_print_json(const fsdp_scale_report *r, FILE *out)
{
    fsdp_json *doc;
    char *text = NULL;
    FSDP_TRY(fsdp_json_create("estimate", &doc));
    fill_json(r, fsdp_json_root(doc));
    fsdp_status status = fsdp_json_print(doc, FSDP_JSON_LINE, &text, NULL);
    if (status == FSDP_OK && fprintf(out, "%s\n", text) < 0)
        status = fsdp_error(FSDP_ERR_IO, "printing the estimate: %s", strerror(errno));
    fsdp_free(text);
    fsdp_json_destroy(doc);
    return status;
}
