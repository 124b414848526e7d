/* See plan.h. */
#include "src/plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/autograd/autograd.h"
#include "src/base/alloc.h"
#include "src/comm/plan_group.h"
#include "src/data/files/data_paths.h"
#include "src/data/rows/rows_form.h"
#include "src/fsdp/observer.h"
#include "src/nn/module.h"
#include "src/state_dict/async_save.h"
#include "src/train/trainer_internal.h"
#include "src/train_config/config_device.h"
#include "src/train_config/config_sources.h"

enum {
    MAX_STEPS = 5,
    /* For a run without a maximum length: the assumed length of a row if nothing else limits it.
     * See default_length(). */
    ROW_TOKENS = 1024
};

typedef struct walk walk;

/* The hooks on one module of a unit. */
typedef struct watched {
    fsdp_region_hooks hooks;
    const fsdp_module *module;
    walk *walk;
    int unit;
    fsdp_plan_moment before; /* the value of walk->now before this unit was entered */
    struct watched *next;    /* next in walk->watched */
} watched;

struct walk {
    fsdp_plan *plan;
    fsdp_trainer trainer;
    fsdp_train_result result;
    fsdp_batch *batch;
    watched *watched;
    fsdp_unit_observer observer;
    fsdp_plan_moment now;
    bool in_step;
    double flops_before; /* the device's product_flops when the step began */
    int micro_step;      /* index of the current or next micro-step */
    fsdp_status status;  /* FSDP_ERR_NOMEM if add_event(), which returns nothing, has failed */
};

/* --- memory --- */

static fsdp_plan_memory memory_of(const int64_t *tags, int64_t total)
{
    fsdp_plan_memory m = {.total = total};
    memcpy(m.tag, tags, sizeof m.tag);
    return m;
}

static fsdp_plan_memory allocated(const walk *w)
{
    fsdp_memory_stats s;
    fsdp_device_memory(w->trainer.device, &s);
    return memory_of(s.tag_allocated, s.allocated);
}

static void raise_to(int64_t *most, int64_t bytes)
{
    if (bytes > *most)
        *most = bytes;
}

static void raise_to_peaks(fsdp_plan_memory *most, const fsdp_memory_stats *s)
{
    for (int tag = 0; tag < FSDP_TAG_COUNT; tag++)
        raise_to(&most->tag[tag], s->tag_peak[tag]);
    raise_to(&most->total, s->allocated_peak);
}

/* Record the peaks of memory since the last call of watch(). The peaks are attributed to walk->now,
 * so watch() must be called before walk->now changes. */
static void watch(walk *w)
{
    fsdp_plan *p = w->plan;
    fsdp_memory_stats s;
    fsdp_device_memory(w->trainer.device, &s);
    fsdp_device_reset_peak_memory(w->trainer.device);
    if (s.allocated_peak > p->peak.total) {
        p->peak = memory_of(s.tag_at_peak, s.allocated_peak);
        p->peak_at = w->now;
    }
    raise_to_peaks(&p->most, &s);
    raise_to_peaks(&p->most_in[w->now.phase], &s);
    raise_to(&p->reserved, s.reserved_peak);
}

static void set_now(walk *w, fsdp_plan_phase phase, int unit)
{
    watch(w);
    w->now = (fsdp_plan_moment){.phase = phase, .unit = unit};
}

/* --- events --- */

static void add_event(walk *w, fsdp_plan_event_kind kind, int unit, uint64_t bytes)
{
    fsdp_plan *p = w->plan;
    if (!w->in_step)
        return;
    if (!FSDP_GROW(p->events, p->cap_events, p->n_events + 1) ||
        !FSDP_GROW(p->timeline, p->cap_timeline, p->n_timeline + 1)) {
        w->status = FSDP_ERR_NOMEM;
        return;
    }
    fsdp_memory_stats s;
    fsdp_device_memory(w->trainer.device, &s);
    const fsdp_plan_event event = {.kind = kind,
                                   .unit = unit,
                                   .phase = w->now.phase,
                                   .allocated = s.allocated,
                                   .bytes = bytes,
                                   .flops = w->trainer.device->product_flops - w->flops_before};
    p->timeline[p->n_timeline++] = event;
    if (w->micro_step + 1 == p->micro_steps)
        p->events[p->n_events++] = event;
}

static const watched *find_watched(const walk *w, const fsdp_module *module)
{
    const watched *u = w->watched;
    while (u && u->module != module)
        u = u->next;
    return u;
}

static void count_collective(fsdp_plan_unit *unit, fsdp_unit_event event, uint64_t bytes)
{
    if (event == FSDP_UNIT_UNSHARD) {
        unit->all_gathers++;
        unit->all_gather_bytes += bytes;
    } else if (event == FSDP_UNIT_LOOK_UP) {
        unit->all_gather_bytes += bytes;
    } else if (event == FSDP_UNIT_REDUCE) {
        unit->reduce_scatters++;
        unit->reduce_scatter_bytes += bytes;
    } else if (event == FSDP_UNIT_ALL_REDUCE) {
        unit->all_reduces++;
        unit->all_reduce_bytes += bytes;
    }
}

static void unit_event(void *self, const fsdp_module *module, fsdp_unit_event event, uint64_t bytes)
{
    static const fsdp_plan_event_kind kinds[] = {
        [FSDP_UNIT_GATHER] = FSDP_PLAN_GATHER,       [FSDP_UNIT_UNSHARD] = FSDP_PLAN_UNSHARD,
        [FSDP_UNIT_RESHARD] = FSDP_PLAN_RESHARD,     [FSDP_UNIT_POST] = FSDP_PLAN_POST,
        [FSDP_UNIT_REDUCE] = FSDP_PLAN_REDUCE,       [FSDP_UNIT_POST_LANES] = FSDP_PLAN_POST_LANES,
        [FSDP_UNIT_SUM_LANES] = FSDP_PLAN_SUM_LANES, [FSDP_UNIT_ALL_REDUCE] = FSDP_PLAN_ALL_REDUCE};
    walk *w = self;
    const watched *u = find_watched(w, module);
    if (!u)
        return;
    if (w->in_step && bytes)
        count_collective(&w->plan->units[u->unit], event, bytes);
    if (event != FSDP_UNIT_LOOK_UP)
        add_event(w, kinds[event], u->unit, bytes);
}

/* --- hooks of units --- */

static void enter(watched *u, fsdp_plan_phase phase)
{
    u->before = u->walk->now;
    set_now(u->walk, phase, u->unit);
    add_event(u->walk, FSDP_PLAN_BEGIN, u->unit, 0);
}

static void leave_unit(watched *u)
{
    add_event(u->walk, FSDP_PLAN_END, u->unit, 0);
    set_now(u->walk, u->before.phase, u->before.unit);
}

static fsdp_status pre_forward(void *self, fsdp_scope *s, fsdp_args *in)
{
    watched *u = self;
    (void)in;
    enter(u, s->run->recomputing ? FSDP_PLAN_RECOMPUTATION : FSDP_PLAN_FORWARD);
    return FSDP_OK;
}

/* Record that the unit has finished its forward. If the unit is the root (unit 0) and there is a
 * backward, the backward begins now. */
static fsdp_status post_forward(void *self, fsdp_scope *s, fsdp_args *out)
{
    watched *u = self;
    (void)out;
    leave_unit(u);
    if (u->unit == 0 && !s->run->recomputing && fsdp_scope_has_backward(s)) {
        u->walk->plan->forward = allocated(u->walk);
        set_now(u->walk, FSDP_PLAN_BACKWARD, -1);
    }
    return FSDP_OK;
}

static fsdp_status pre_backward(void *self)
{
    enter(self, FSDP_PLAN_BACKWARD);
    return FSDP_OK;
}

static fsdp_status post_backward(void *self, bool last)
{
    (void)last;
    leave_unit(self);
    return FSDP_OK;
}

/* End the backward of a micro-step. Does nothing for units other than the root. The hooks of
 * fully_shard have run before this hook. */
static fsdp_status end_backward(void *self)
{
    const watched *u = self;
    walk *w = u->walk;
    if (u->unit != 0)
        return FSDP_OK;
    w->plan->backward = allocated(w);
    w->micro_step++;
    set_now(w, w->micro_step < w->plan->micro_steps ? FSDP_PLAN_FORWARD : FSDP_PLAN_OPTIMIZER, -1);
    return FSDP_OK;
}

static fsdp_status add_unit(walk *w, const char *path, const fsdp_module *m,
                            const fsdp_unit_info *info)
{
    fsdp_plan *p = w->plan;
    if (!FSDP_GROW(p->units, p->cap_units, p->n_units + 1))
        return FSDP_ERR_NOMEM;
    fsdp_plan_unit *unit = &p->units[p->n_units++];
    *unit = (fsdp_plan_unit){.name = fsdp_strdup(path),
                             .class_name = fsdp_strdup(fsdp_module_class(m)),
                             .numel = info->numel,
                             .local_numel = info->local_numel,
                             .shard_ranks = fsdp_group_world_size(info->group),
                             .shard_local_ranks = fsdp_group_local_world_size(info->group),
                             .replicas = fsdp_group_world_size(info->replicate_group),
                             .local_replicas = fsdp_group_local_world_size(info->replicate_group),
                             .kept_ranks = info->kept_ranks};
    return unit->name && unit->class_name ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status watch_unit(const char *path, fsdp_module *m, void *arg)
{
    walk *w = arg;
    fsdp_unit_info info;
    if (!fsdp_module_is_unit(m))
        return FSDP_OK;
    FSDP_TRY(fsdp_unit_get_info(m, &info));
    const watched *first = find_watched(w, info.first_module);
    if (!first)
        FSDP_TRY(add_unit(w, path, m, &info));
    watched *u = fsdp_calloc(1, sizeof *u);
    if (!u)
        return FSDP_ERR_NOMEM;
    *u = (watched){.hooks = {.pre_forward = pre_forward,
                             .post_forward = post_forward,
                             .pre_backward = pre_backward,
                             .post_backward = post_backward,
                             .end_backward = end_backward,
                             .self = u},
                   .module = m,
                   .walk = w,
                   .unit = first ? first->unit : (int)w->plan->n_units - 1,
                   .next = w->watched};
    w->plan->units[u->unit].modules++;
    w->watched = u;
    return fsdp_module_add_hooks(m, &u->hooks, NULL);
}

/* --- the batch --- */

/* Set p->source_length for a run without --max-seq-length. The first limit is the number of the
 * model's positions. The second limit, ROW_TOKENS, is only for rows that are always filled to the
 * maximum (token files, packing, and plain text for a causal model). If neither limit exists,
 * ROW_TOKENS is assumed. */
static fsdp_status default_length(const walk *w, fsdp_plan *p)
{
    const int64_t positions = w->trainer.model->info.max_positions;
    bool tokens;
    FSDP_TRY(fsdp_is_token_path(w->trainer.config->data, &tokens));
    const bool fills =
        tokens || w->trainer.config->form.packing ||
        (p->task == FSDP_TASK_CAUSAL_LM && fsdp_is_plain_text_name(w->trainer.config->data));
    p->source_length = positions;
    if (!positions || (fills && positions > ROW_TOKENS))
        p->source_length = ROW_TOKENS;
    p->length_is_assumed = !positions && !fills;
    return FSDP_OK;
}

/* Return true if rows may be longer than the plan assumes. Datasets cut token ids only to lengths
 * that the user gave. So the rows may be too long if they contain token ids, and
 * --max-source-length or --max-target-length was not given. If the data do not exist yet, it is
 * unknown whether rows contain token ids, and false is returned. */
static bool takes_ids_whole(const fsdp_train_config *c)
{
    bool ids = false, texts;
    return !(c->cut_sources && c->cut_targets) && fsdp_train_sources_have_pairs(c) &&
           fsdp_first_row_kind(c->data, c->form.json_field, false, &ids, &texts) == FSDP_OK && ids;
}

static fsdp_status choose_lengths(const walk *w, fsdp_plan *p)
{
    const fsdp_train_config *c = w->trainer.config;
    p->takes_ids_whole = p->task == FSDP_TASK_SEQ2SEQ && takes_ids_whole(c);
    p->micro_steps = c->gradient_accumulation_steps;
    p->set_internode_reduce_dtype = c->set_internode_reduce_dtype;
    p->internode_reduce_dtype = c->internode_reduce_dtype;
    p->rows = c->batch_size;
    p->source_length = p->task == FSDP_TASK_SEQ2SEQ ? c->max_source_length : c->max_seq_length;
    p->target_length = p->task == FSDP_TASK_SEQ2SEQ ? fsdp_train_sources_target_length(c) : 0;
    return p->source_length ? FSDP_OK : default_length(w, p);
}

static int32_t labels_of(const fsdp_plan *p)
{
    switch (p->task) {
    case FSDP_TASK_SEQ2SEQ:
        return (int32_t)p->target_length;
    case FSDP_TASK_CLASSIFICATION:
        return 1;
    case FSDP_TASK_CAUSAL_LM:
    case FSDP_TASK_MASKED_LM:
        break;
    }
    return (int32_t)p->source_length;
}

static fsdp_status make_batch(const walk *w, int64_t n, fsdp_batch **batch)
{
    const fsdp_plan *p = w->plan;
    const int64_t longest =
        p->source_length > p->target_length ? p->source_length : p->target_length;
    if (n * longest > INT32_MAX)
        return fsdp_error(FSDP_ERR_INVALID, "a batch of %lld rows of %lld tokens is too large",
                          (long long)n, (long long)longest);
    int32_t *ids = fsdp_calloc(2 * (size_t)longest, sizeof *ids); /* id 0 is in every vocabulary */
    int32_t *labels = ids ? ids + longest : NULL;
    fsdp_batch_row *rows = fsdp_calloc((size_t)n, sizeof *rows);
    const int32_t numbers = w->trainer.model->info.format.num_targets;
    float *targets = fsdp_calloc((size_t)numbers, sizeof *targets);
    fsdp_status status = ids && rows && targets ? FSDP_OK : FSDP_ERR_NOMEM;
    /* For a masked language model, give labels to one token in six. Random masking usually gives
     * labels to fewer tokens. */
    for (int64_t i = 0; ids && p->task == FSDP_TASK_MASKED_LM && i < longest; i++)
        labels[i] = i % 6 ? FSDP_IGNORE_INDEX : 0;
    for (int64_t i = 0; rows && i < n; i++)
        rows[i] = (fsdp_batch_row){.source = ids,
                                   .labels = labels,
                                   .source_len = (int32_t)p->source_length,
                                   .labels_len = numbers ? 0 : labels_of(p),
                                   .targets = targets,
                                   .targets_len = numbers};
    if (status == FSDP_OK)
        status = fsdp_batch_create(rows, (int32_t)n, &w->trainer.model->info.format, batch);
    fsdp_free(targets);
    fsdp_free(rows);
    fsdp_free(ids);
    return status;
}

/* --- running steps --- */

/* Print the module tree to a new string, *tree. The caller frees it with free(). */
static fsdp_status print_tree(const walk *w, char **tree)
{
    size_t size;
    FILE *out = open_memstream(tree, &size);
    if (!out)
        return fsdp_error_nomem();
    fsdp_status status = fsdp_trainer_print_model(&w->trainer, out);
    if (fclose(out) != 0 && status == FSDP_OK)
        status = fsdp_error_nomem();
    return status;
}

static fsdp_status open_run(walk *w)
{
    fsdp_trainer *t = &w->trainer;
    fsdp_plan *p = w->plan;
    const bool uses_cards = fsdp_train_uses_cards(t->config);
    const fsdp_device_options options = {.name = uses_cards ? "meta:cuda" : "meta"};
    if (uses_cards)
        p->ranks_per_card = fsdp_train_ranks_per_card(t->config, p->local_world_size);
    if (uses_cards && p->local_world_size == p->world_size)
        FSDP_TRY(fsdp_plan_group_set_card_ranks(t->group, p->ranks_per_card));
    FSDP_TRY(fsdp_device_create(&options, &t->device));
    FSDP_TRY(fsdp_trainer_open_model(t));
    FSDP_TRY(fsdp_trainer_open_loop(t));
    p->task = t->task;
    p->has_float8_scales = t->config->float8_all_gather && t->model->n_float8;
    p->class_name = fsdp_strdup(fsdp_module_class(t->loop.module));
    if (!p->class_name)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < t->loop.parameters.n; i++)
        p->numel += fsdp_parameter_numel(t->loop.parameters.items[i].parameter);
    if (t->config->print_model != FSDP_PRINT_MODEL_NONE)
        FSDP_TRY(print_tree(w, &p->tree));
    FSDP_TRY(fsdp_module_visit(t->loop.module, watch_unit, w));
    w->observer = (fsdp_unit_observer){.event = unit_event, .self = w};
    fsdp_observe_units(t->loop.module, &w->observer);
    FSDP_TRY(choose_lengths(w, p));
    const fsdp_model_config *model = &t->model->config;
    p->work = model->type->work(model, p->rows, p->source_length, p->target_length);
    return make_batch(w, p->rows, &w->batch);
}

static void count_small(const walk *w, int sign)
{
    const fsdp_comm_counters *c = fsdp_group_counters(w->trainer.group);
    fsdp_plan *p = w->plan;
    for (int kind = 0; kind < FSDP_KIND_STATE_DICT; kind++) {
        p->small_collectives += (uint64_t)sign * c->calls[kind];
        p->small_bytes += (uint64_t)sign * c->logical_bytes[kind];
    }
}

/* Drop what previous steps have recorded, because a plan describes only the last step. */
static void forget_step(fsdp_plan *p)
{
    p->n_events = p->n_timeline = 0;
    p->small_collectives = p->small_bytes = 0;
    for (size_t i = 0; i < p->n_units; i++) {
        fsdp_plan_unit *u = &p->units[i];
        u->all_gathers = u->reduce_scatters = u->all_reduces = 0;
        u->all_gather_bytes = u->reduce_scatter_bytes = u->all_reduce_bytes = 0;
    }
}

static fsdp_status run_step(walk *w, fsdp_batch *const *batches, int64_t step)
{
    fsdp_step_result result;
    forget_step(w->plan);
    count_small(w, -1);
    w->micro_step = 0;
    w->in_step = true;
    w->flops_before = w->trainer.device->product_flops;
    fsdp_status status = fsdp_train_step_on(&w->trainer.loop, batches, 0.0, step, &result);
    set_now(w, FSDP_PLAN_FORWARD, -1);
    w->in_step = false;
    w->plan->flops = w->trainer.device->product_flops - w->flops_before;
    count_small(w, 1);
    w->plan->step = allocated(w);
    return status == FSDP_OK ? w->status : status;
}

/* Return true if the last step has not raised the peaks, and if the same memory was allocated after
 * this step as after the step before it. `before` is the plan before the last step. The first steps
 * may differ, because the buffers that stay allocated between steps depend on the order in which
 * units ask for buffers (Note [Idle memory] in src/fsdp/buffer.h). */
static bool has_settled(const fsdp_plan *before, const fsdp_plan *p)
{
    return memcmp(&before->most, &p->most, sizeof p->most) == 0 &&
           memcmp(&before->step, &p->step, sizeof p->step) == 0 && before->reserved == p->reserved;
}

static fsdp_status run_steps(walk *w)
{
    const int n = w->trainer.loop.micro_steps;
    fsdp_batch **batches = fsdp_calloc((size_t)n, sizeof(fsdp_batch *));
    fsdp_status status = batches ? FSDP_OK : FSDP_ERR_NOMEM;
    bool settled = false;
    for (int a = 0; batches && a < n; a++)
        batches[a] = w->batch;
    for (int step = 0; step < MAX_STEPS && !settled && status == FSDP_OK; step++) {
        const fsdp_plan before = *w->plan;
        w->batch->step = (uint32_t)step;
        status = run_step(w, batches, step);
        settled = step > 0 && has_settled(&before, w->plan);
    }
    fsdp_free(batches);
    return status;
}

/* Run a validation. If its batches are larger than those of training, it may need more memory than
 * a training step. If they have the same size, it needs less, because a validation has no
 * gradients. */
static fsdp_status run_validation(walk *w)
{
    const fsdp_train_config *c = w->trainer.config;
    fsdp_batch *batch;
    if (!c->run_validation)
        return FSDP_OK;
    FSDP_TRY(make_batch(w, c->validation_batch_size, &batch));
    fsdp_status status = fsdp_validate_on(&w->trainer.loop, batch);
    fsdp_batch_release(batch);
    return status;
}

/* Gather one whole parameter after another, as every rank does when a run saves the model. */
static fsdp_status run_save(walk *w)
{
    const fsdp_parameter_list *list = &w->trainer.loop.parameters;
    for (size_t i = 0; w->trainer.config->save_model && i < list->n; i++) {
        fsdp_tensor *full;
        /* If the model has an adapter, only the trained parameters are saved. */
        if (w->trainer.model->lora && !fsdp_parameter_requires_grad(list->items[i].parameter))
            continue;
        FSDP_TRY(fsdp_full_tensor(fsdp_parameter_local(list->items[i].parameter), &full));
        fsdp_tensor_release(full);
    }
    return FSDP_OK;
}

/* Set p->staging, the peak of the copies for --async-save. Each byte of a checkpoint is copied at
 * most once, so the copies never exceed the size of a checkpoint. They are in the staging memory,
 * so they never exceed its limit either (fsdp_async_save_staging_bytes()). */
static void count_staging(walk *w)
{
    const fsdp_plan_memory *kept = &w->plan->step;
    const int64_t saved = kept->tag[FSDP_TAG_PARAM] + kept->tag[FSDP_TAG_OPTIM];
    const int64_t pool = (int64_t)fsdp_async_save_staging_bytes(w->trainer.group);
    if (w->trainer.config->async_save)
        w->plan->staging = saved < pool ? saved : pool;
}

static fsdp_status run_plan(walk *w)
{
    FSDP_TRY(open_run(w));
    w->plan->init = allocated(w);
    set_now(w, FSDP_PLAN_FORWARD, -1);
    FSDP_TRY(run_steps(w));
    count_staging(w);
    /* A run changes the mode at its end even if it neither validates nor saves. */
    FSDP_TRY(fsdp_trainer_set_mode(&w->trainer, true));
    FSDP_TRY(run_validation(w));
    set_now(w, FSDP_PLAN_SAVE, -1);
    FSDP_TRY(run_save(w));
    watch(w);
    return FSDP_OK;
}

static void fini(walk *w)
{
    fsdp_batch_release(w->batch);
    fsdp_trainer_fini(&w->trainer);
    while (w->watched) { /* freed after the modules, which point to these hooks */
        watched *u = w->watched;
        w->watched = u->next;
        fsdp_free(u);
    }
    fsdp_destroy_process_group(w->trainer.group);
}

fsdp_status fsdp_plan_create(const fsdp_train_config *config, int world_size, int local_world_size,
                             fsdp_plan **plan)
{
    walk w = {.trainer = {.completed = *config}, .now = {.phase = FSDP_PLAN_INIT, .unit = -1}};
    w.trainer.config = &w.trainer.completed;
    w.trainer.result = &w.result;
    w.plan = fsdp_calloc(1, sizeof *w.plan);
    if (!w.plan)
        return FSDP_ERR_NOMEM;
    w.plan->world_size = world_size;
    w.plan->local_world_size = local_world_size;
    fsdp_status status = fsdp_plan_group_create(0, world_size, local_world_size, &w.trainer.group);
    if (status == FSDP_OK)
        status = run_plan(&w);
    fini(&w);
    if (status != FSDP_OK) {
        fsdp_plan_destroy(w.plan);
        return status;
    }
    *plan = w.plan;
    return FSDP_OK;
}

void fsdp_plan_destroy(fsdp_plan *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n_units; i++) {
        fsdp_free(p->units[i].name);
        fsdp_free(p->units[i].class_name);
    }
    fsdp_free(p->units);
    fsdp_free(p->events);
    fsdp_free(p->timeline);
    fsdp_free(p->class_name);
    free(p->tree);
    fsdp_free(p);
}

const char *fsdp_plan_phase_name(fsdp_plan_phase phase)
{
    static const char *const names[FSDP_PLAN_PHASES] = {[FSDP_PLAN_INIT] = "init",
                                                        [FSDP_PLAN_FORWARD] = "forward",
                                                        [FSDP_PLAN_RECOMPUTATION] = "recomputation",
                                                        [FSDP_PLAN_BACKWARD] = "backward",
                                                        [FSDP_PLAN_OPTIMIZER] = "optimizer step",
                                                        [FSDP_PLAN_SAVE] = "saving the model"};
    return names[phase];
}

const char *fsdp_plan_unit_name(const fsdp_plan *p, int unit)
{
    if (unit < 0)
        return "";
    return *p->units[unit].name ? p->units[unit].name : "root";
}

/* Note [Beside the plan]. A rank's process needs memory for more than its tensors: the program and
 * its libraries, stacks, the tape, and what matrix products keep (oneDNN primitives and packed
 * panels). The tokenizer and the batches that loader threads prepare also need memory. All this
 * took 14 to 42 MiB per rank in runs with T5-small and with a Llama of 58 M parameters. The amount
 * hardly depends on the model. Mapped files, such as token files and weights that are being loaded,
 * are not included, because the kernel can take their memory back at any time. */
int64_t fsdp_plan_host_bytes(const fsdp_plan *p)
{
    const int64_t tensors = p->ranks_per_card ? 0 : p->reserved;
    return (tensors + p->staging + FSDP_BESIDE_TENSORS_BYTES) * p->local_world_size;
}

int64_t fsdp_plan_limited_bytes(const fsdp_plan *p)
{
    return p->ranks_per_card ? p->reserved * p->ranks_per_card : fsdp_plan_host_bytes(p);
}

int64_t fsdp_plan_rank_bytes(const fsdp_plan *p)
{
    return p->ranks_per_card ? fsdp_plan_limited_bytes(p)
                             : fsdp_plan_host_bytes(p) / p->local_world_size;
}
