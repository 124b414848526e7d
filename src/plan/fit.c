/* See fit.h. */
#include "src/plan/fit.h"

#include <errno.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/json.h"
#include "src/plan/remedies.h"
#include "src/report/human.h"
#include "src/report/table.h"

/* A change of the run that may save memory; see fit.h. The table below begins with the cheapest
 * candidate. To add one, write its function in remedies.c, and add a row where its cost belongs. */
typedef struct candidate {
    fsdp_remedy_fn *apply;
    const char *cost; /* a text: the flag of the change, and what the change costs */
    bool repeats;     /* it may be applied several times; the flags of the last time count */
    /* A cheaper candidate that contradicts this one. When this candidate is added, the cheaper one
     * is removed. At the end, the cheaper one is chosen again if the run also fits with it in place
     * of this candidate. NULL: none. */
    fsdp_remedy_fn *replaces;
    /* A candidate whose flags depend on this one, so this one is applied first. NULL: none. */
    fsdp_remedy_fn *precedes;
} candidate;

static const candidate candidates[] = {
    {.apply = fsdp_remedy_save_in_step,
     .cost = "--no-async-save: a step that saves waits for the disk"},
    /* These cost more communication or recomputation, but give the same numbers. */
    {.apply = fsdp_remedy_reshard,
     .cost = "--sharding-strategy: weights are gathered again in backward"},
    {.apply = fsdp_remedy_checkpoint_ops,
     .cost = "--activation-checkpointing-kind op: backward computes the cheap operations of a "
             "block again"},
    {.apply = fsdp_remedy_checkpoint,
     .cost = "--activation-checkpointing: backward computes each block again, a third more work"},
    {.apply = fsdp_remedy_split_batch,
     .cost = "--gradient-accumulation-steps: smaller products, and each micro-step gathers and "
             "reduces",
     .repeats = true},
    /* These give other numbers, with about the same loss. */
    {.apply = fsdp_remedy_bf16,
     .cost = "--bf16: activations and weights are rounded to bfloat16 in products"},
    {.apply = fsdp_remedy_adamw_8bit,
     .cost = "--optimizer adamw_8bit: moments are rounded to 8 bits"},
    {.apply = fsdp_remedy_bf16_master,
     .cost = "--master-dtype bfloat16: each step rounds the weights to bfloat16"},
    {.apply = fsdp_remedy_adafactor,
     .cost = "--optimizer adafactor: another update, which needs another --lr and a search for it",
     .replaces = fsdp_remedy_adamw_8bit,
     .precedes = fsdp_remedy_bf16_master},
    {.apply = fsdp_remedy_float8_all_gather,
     .cost = "--float8-enable-fsdp-all-gather: a gather sends 1 byte a weight of the linear "
             "layers, but their products have operands of 8 bits, which changes the loss more "
             "than bfloat16, and the casts make steps slower on a CPU"},
    /* This candidate makes steps as slow as a disk. */
    {.apply = fsdp_remedy_activation_offload,
     .cost = "--activation-offload: inputs of blocks are written to a file and read again"},
    /* The remaining candidates change what is trained, or make steps as slow as a disk. */
    {.apply = fsdp_remedy_lora,
     .cost = "--lora-r: only an adapter is trained",
     .replaces = fsdp_remedy_float8_all_gather},
    {.apply = fsdp_remedy_load_in_4bit,
     .cost = "--load-in-4bit: the frozen weights are rounded to 4 bits"},
    {.apply = fsdp_remedy_offload, .cost = "--offload-dir: a step is as slow as the disk"},
};

enum {
    N = sizeof candidates / sizeof *candidates
};
_Static_assert((int)N == (int)FSDP_FIT_CANDIDATES, "fsdp_fit.costs has room for all");

typedef struct search {
    const fsdp_train_config *config;
    int world_size, local_world_size;
    int times[N]; /* how often each candidate is applied */
    fsdp_fit *fit;
} search;

static void free_row(fsdp_fit_row *row)
{
    fsdp_free(row->flags);
    *row = (fsdp_fit_row){0};
}

/* Apply candidate i to *c the chosen number of times, s->times[i]. Append its flags to `all`. If i
 * is equal to `of`, append its flags to `last`, too. Return false if the candidate has nothing to
 * change in *c. */
static bool apply_candidate(const search *s, int i, fsdp_train_config *c, fsdp_str *all, int of,
                            fsdp_str *last)
{
    fsdp_str flags = {0};
    bool changed = true;
    for (int k = 0; k < s->times[i] && changed; k++) {
        flags.len = 0;
        changed = candidates[i].apply(c, &flags);
    }
    if (changed && flags.len)
        fsdp_str_append(all, flags.data, flags.len);
    if (changed && flags.len && i == of)
        fsdp_str_append(last, flags.data, flags.len);
    all->failed |= flags.failed;
    fsdp_str_fini(&flags);
    return changed;
}

/* Apply the chosen candidates (s->times) to *c, and append their flags to `all`. Also append the
 * flags of candidate `of` to `last`. Return false if a chosen candidate has nothing to change in
 * *c. */
static bool apply_candidates(const search *s, fsdp_train_config *c, fsdp_str *all, int of,
                             fsdp_str *last)
{
    bool changed = true;
    for (int i = 0; i < N && changed; i++) {
        for (int k = 0; k < N && changed; k++)
            if (candidates[k].precedes == candidates[i].apply)
                changed = apply_candidate(s, k, c, all, of, last);
        if (changed && !candidates[i].precedes)
            changed = apply_candidate(s, i, c, all, of, last);
    }
    return changed;
}

static fsdp_status fill_row(const fsdp_plan *plan, const fsdp_str *flags, fsdp_fit_row *row)
{
    row->peak = plan->peak;
    row->rank_bytes = fsdp_plan_rank_bytes(plan);
    row->flags = fsdp_strdup(flags->len ? flags->data + 1 : ""); /* without the first blank */
    return row->flags ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* Make the plan of the run with the chosen candidates. Set *possible to false if a candidate has
 * nothing to change, or contradicts other flags of the run; then no plan is made. `row` gets the
 * flags of candidate `of`, and `whole` all flags. The caller owns the plan and the rows. */
static fsdp_status try_candidates(const search *s, int of, bool *possible, fsdp_plan **plan,
                                  fsdp_fit_row *row, fsdp_fit_row *whole)
{
    fsdp_train_config c = *s->config;
    fsdp_str all = {0}, last = {0};
    fsdp_status status = FSDP_OK;
    *possible = apply_candidates(s, &c, &all, of, &last);
    if (all.failed || last.failed)
        status = fsdp_error_nomem();
    *possible = *possible && status == FSDP_OK &&
                (!all.len || fsdp_remedy_is_accepted(s->config, all.data));
    if (status == FSDP_OK && *possible)
        status = fsdp_plan_create(&c, s->world_size, s->local_world_size, plan);
    if (status == FSDP_ERR_INVALID || status == FSDP_ERR_UNSUPPORTED) {
        *possible = false;
        status = FSDP_OK;
    }
    if (status == FSDP_OK && *possible) {
        status = fill_row(*plan, &last, row);
        if (status == FSDP_OK)
            status = fill_row(*plan, &all, whole);
    }
    fsdp_str_fini(&all);
    fsdp_str_fini(&last);
    return status;
}

/* Set the proposal of `fit` to `whole` and `plan`, the row and the plan of the chosen candidates.
 * `fit` then owns both. */
static void propose(fsdp_fit *fit, fsdp_fit_row *whole, fsdp_plan *plan)
{
    free_row(&fit->proposal);
    fsdp_plan_destroy(fit->plan);
    fit->proposal = *whole;
    fit->plan = plan;
    fit->fits = whole->rank_bytes <= fit->limit;
    *whole = (fsdp_fit_row){0};
}

static fsdp_status append_row(fsdp_fit *fit, fsdp_fit_row *row)
{
    if (!FSDP_GROW(fit->rows, fit->cap_rows, fit->n_rows + 1))
        return FSDP_ERR_NOMEM;
    fit->rows[fit->n_rows++] = *row;
    *row = (fsdp_fit_row){0};
    return FSDP_OK;
}

/* Apply candidate i once more, and remove the candidate that it contradicts, if any. Keep this
 * change, and add a row to the table, only if the change saves memory. */
static fsdp_status add_candidate(search *s, int i, bool *kept)
{
    fsdp_fit *fit = s->fit;
    fsdp_fit_row row = {0}, whole = {0};
    fsdp_plan *plan = NULL;
    int before[N];
    memcpy(before, s->times, sizeof before);
    for (int k = 0; k < N; k++)
        if (candidates[k].apply == candidates[i].replaces)
            s->times[k] = 0;
    s->times[i]++;
    fsdp_status status = try_candidates(s, i, kept, &plan, &row, &whole);
    *kept = *kept && status == FSDP_OK && row.rank_bytes < fit->proposal.rank_bytes;
    if (*kept)
        status = append_row(fit, &row);
    if (*kept && status == FSDP_OK) {
        propose(fit, &whole, plan);
        plan = NULL;
    } else {
        memcpy(s->times, before, sizeof before);
    }
    fsdp_plan_destroy(plan);
    free_row(&row);
    free_row(&whole);
    return status;
}

/* Apply candidate i once less and, if `instead` is not negative, candidate `instead` once more.
 * Keep this change only if the run still fits. If the run does not fit even without the change,
 * keep it only if the run needs no more memory than before. */
static fsdp_status drop_candidate(search *s, int i, int instead, bool *dropped)
{
    fsdp_fit *fit = s->fit;
    const int64_t most = fit->fits ? fit->limit : fit->proposal.rank_bytes;
    fsdp_fit_row row = {0}, whole = {0};
    fsdp_plan *plan = NULL;
    int before[N];
    memcpy(before, s->times, sizeof before);
    s->times[i]--;
    if (instead >= 0)
        s->times[instead]++;
    fsdp_status status = try_candidates(s, i, dropped, &plan, &row, &whole);
    *dropped = *dropped && status == FSDP_OK && whole.rank_bytes <= most;
    if (*dropped) {
        propose(fit, &whole, plan);
        plan = NULL;
    } else {
        memcpy(s->times, before, sizeof before);
    }
    fsdp_plan_destroy(plan);
    free_row(&row);
    free_row(&whole);
    return status;
}

/* Apply candidate i as rarely as possible. If it cannot be left out, but the run also fits with the
 * cheaper candidate that it has replaced, choose the cheaper candidate instead. */
static fsdp_status drop_or_swap(search *s, int i)
{
    bool more = true;
    while (more && s->times[i])
        FSDP_TRY(drop_candidate(s, i, -1, &more));
    for (int k = 0; k < i && s->times[i]; k++)
        if (candidates[i].replaces && candidates[k].apply == candidates[i].replaces)
            FSDP_TRY(drop_candidate(s, i, k, &more));
    return FSDP_OK;
}

/* Find the proposal. A candidate saves nothing as long as the peak is at a moment that the
 * candidate does not affect. So after each candidate that is kept, the search begins again with the
 * cheapest candidate. */
static fsdp_status find_proposal(search *s)
{
    for (int i = 0; i < N && !s->fit->fits;) {
        bool kept = false;
        if (!s->times[i] || candidates[i].repeats)
            FSDP_TRY(add_candidate(s, i, &kept));
        i = kept ? 0 : i + 1;
    }
    for (int i = N - 1; i >= 0; i--)
        FSDP_TRY(drop_or_swap(s, i));
    for (int i = 0; i < N; i++)
        if (s->times[i])
            s->fit->costs[s->fit->n_costs++] = candidates[i].cost;
    return FSDP_OK;
}

static fsdp_status plan_as_given(const search *s)
{
    const fsdp_str none = {0};
    fsdp_fit *fit = s->fit;
    fsdp_fit_row row = {0};
    FSDP_TRY(fsdp_plan_create(s->config, s->world_size, s->local_world_size, &fit->plan));
    FSDP_TRY(fill_row(fit->plan, &none, &fit->proposal));
    FSDP_TRY(fill_row(fit->plan, &none, &row));
    fit->fits = row.rank_bytes <= fit->limit;
    fsdp_status status = append_row(fit, &row);
    free_row(&row);
    return status;
}

fsdp_status fsdp_fit_create(const fsdp_train_config *config, int world_size, int local_world_size,
                            int64_t limit, fsdp_fit **out)
{
    fsdp_fit *fit = fsdp_calloc(1, sizeof *fit);
    if (!fit)
        return FSDP_ERR_NOMEM;
    search s = {.config = config,
                .world_size = world_size,
                .local_world_size = local_world_size,
                .fit = fit};
    fit->limit = limit;
    fsdp_status status = plan_as_given(&s);
    if (status == FSDP_OK)
        status = find_proposal(&s);
    if (status != FSDP_OK) {
        fsdp_fit_destroy(fit);
        return status;
    }
    *out = fit;
    return FSDP_OK;
}

void fsdp_fit_destroy(fsdp_fit *fit)
{
    if (!fit)
        return;
    for (size_t i = 0; i < fit->n_rows; i++)
        free_row(&fit->rows[i]);
    fsdp_free(fit->rows);
    free_row(&fit->proposal);
    fsdp_plan_destroy(fit->plan);
    fsdp_free(fit);
}

/* --- printing --- */

static void print_row(fsdp_table *table, const char *name, const fsdp_fit_row *row)
{
    fsdp_table_row(table);
    fsdp_table_cell(table, "%s", name);
    for (int tag = 0; tag < FSDP_TAG_COUNT; tag++)
        fsdp_table_cell(table, "%s", fsdp_human_bytes(row->peak.tag[tag]).text);
    fsdp_table_cell(table, "%s", fsdp_human_bytes(row->rank_bytes).text);
}

static fsdp_status print_table(const fsdp_fit *fit, FILE *out)
{
    fsdp_table *table;
    FSDP_TRY(fsdp_table_create(FSDP_TAG_COUNT + 2, &table));
    fsdp_table_column(table, 0, "one rank, at the peak", FSDP_TABLE_LEFT);
    for (int tag = 0; tag < FSDP_TAG_COUNT; tag++)
        fsdp_table_column(table, (size_t)tag + 1, fsdp_tag_name((fsdp_tag)tag), FSDP_TABLE_RIGHT);
    fsdp_table_column(table, FSDP_TAG_COUNT + 1, "in all", FSDP_TABLE_RIGHT);
    for (size_t i = 0; i < fit->n_rows; i++)
        print_row(table, i ? fit->rows[i].flags : "as given", &fit->rows[i]);
    fsdp_table_rule(table);
    print_row(table, "the proposal", &fit->proposal);
    fsdp_status status = fsdp_table_print(table, out, FSDP_TABLE_AUTO);
    fsdp_table_destroy(table);
    return status;
}

fsdp_status fsdp_fit_print(const fsdp_fit *fit, FILE *out)
{
    fsdp_plan_print_head(fit->plan, out);
    FSDP_TRY(print_table(fit, out));
    if (fit->fits && !*fit->proposal.flags)
        fprintf(out, "--fit %s: it fits as given: %s a rank\n", fsdp_human_bytes(fit->limit).text,
                fsdp_human_bytes(fit->proposal.rank_bytes).text);
    else if (fit->fits)
        fprintf(out, "--fit %s: it fits with %s: %s a rank\n", fsdp_human_bytes(fit->limit).text,
                fit->proposal.flags, fsdp_human_bytes(fit->proposal.rank_bytes).text);
    for (int i = 0; i < fit->n_costs; i++)
        fprintf(out, "%s%s\n", i ? "  " : "what it costs:\n  ", fit->costs[i]);
    return ferror(out) ? fsdp_error(FSDP_ERR_IO, "printing the plan: %s", strerror(errno))
                       : FSDP_OK;
}

static void set_row(fsdp_json_node object, const fsdp_fit_row *row)
{
    fsdp_json_set_str(object, "flags", row->flags);
    fsdp_json_node peak = fsdp_json_set_object(object, "peak");
    for (int tag = 0; tag < FSDP_TAG_COUNT; tag++)
        fsdp_json_set_i64(peak, fsdp_tag_name((fsdp_tag)tag), row->peak.tag[tag]);
    fsdp_json_set_i64(peak, "allocated", row->peak.total);
    fsdp_json_set_i64(object, "rank_bytes", row->rank_bytes);
}

fsdp_status fsdp_fit_print_json(const fsdp_fit *fit, FILE *out)
{
    fsdp_json *doc;
    char *text = NULL;
    FSDP_TRY(fsdp_json_create("fit", &doc));
    fsdp_json_node root = fsdp_json_root(doc);
    fsdp_json_set_i64(root, "limit", fit->limit);
    fsdp_json_set_bool(root, "fits", fit->fits);
    set_row(fsdp_json_set_object(root, "proposal"), &fit->proposal);
    fsdp_json_node costs = fsdp_json_set_array(root, "costs");
    for (int i = 0; i < fit->n_costs; i++)
        fsdp_json_append_str(costs, fit->costs[i]);
    fsdp_json_node rows = fsdp_json_set_array(root, "rows");
    for (size_t i = 0; i < fit->n_rows; i++)
        set_row(fsdp_json_append_object(rows), &fit->rows[i]);
    fsdp_status status = fsdp_json_print(doc, FSDP_JSON_LINE, &text, NULL);
    if (status == FSDP_OK && fprintf(out, "%s\n", text) < 0)
        status = fsdp_error(FSDP_ERR_IO, "printing the plan: %s", strerror(errno));
    fsdp_free(text);
    fsdp_json_destroy(doc);
    return status;
}

fsdp_status fsdp_fit_check(const fsdp_fit *fit)
{
    if (fit->fits)
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_NOMEM,
        "--fit %s: no setting that this command knows is enough: the least that a "
        "rank needs with those it tried is %s%s%s; more ranks (--world-size) make it smaller",
        fsdp_human_bytes(fit->limit).text, fsdp_human_bytes(fit->proposal.rank_bytes).text,
        *fit->proposal.flags ? ", with " : "", fit->proposal.flags);
}
