/* See slot.h. */
#include "src/fsdp/slot.h"

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/trace/trace.h"
#include "src/fsdp/grad_rows.h"

static fsdp_grad_parts open_parts(const fsdp_param_group *u)
{
    return (fsdp_grad_parts){u->slot, u->group, u->slot_numel};
}

fsdp_grad_parts fsdp_slot_published(const fsdp_param_group *u)
{
    return (fsdp_grad_parts){u->published, u->group, u->published_numel};
}

fsdp_phase_info fsdp_slot_info(const fsdp_param_group *u, fsdp_phase_kind kind, size_t numel)
{
    fsdp_dtype dtype = u->options.mp_policy.reduce_dtype;
    return (fsdp_phase_info){.unit = u->number,
                             .step = u->step,
                             .kind = (uint16_t)kind,
                             .dtype = (uint16_t)dtype,
                             .bytes = numel * fsdp_dtype_size(dtype)};
}

fsdp_phase_info fsdp_slot_reduce_info(const fsdp_param_group *u)
{
    size_t numel = 0;
    for (size_t i = 0; i < u->n_params; i++)
        if (u->params[i].published)
            numel += (size_t)fsdp_parameter_numel(u->params[i].parameter);
    return fsdp_slot_info(u, FSDP_KIND_REDUCE_SCATTER, numel);
}

/* --- layout --- */

static int64_t whole_numel(const fsdp_param *p)
{
    return fsdp_param_group_aligned(fsdp_parameter_numel(p->parameter));
}

static bool has_tables(const fsdp_param_group *u)
{
    for (size_t i = 0; i < u->n_params; i++)
        if (u->params[i].table.most)
            return true;
    return false;
}

static bool is_vector(const fsdp_param *p)
{
    return p->parameter->ndim < 2;
}

/* Of the matrices of a section; 0: the unit has none, or they would be hardly less than all. */
static int64_t section_numel(const fsdp_param_group *u)
{
    int64_t all = 0, largest = 0, vectors = 0;
    for (size_t i = 0; i < u->n_params; i++) {
        const fsdp_param *p = &u->params[i];
        const int64_t numel = p->in_slot ? whole_numel(p) : 0;
        all += numel;
        if (is_vector(p))
            vectors += numel;
        else if (numel > largest)
            largest = numel;
    }
    if (all < u->least_in_sections)
        return 0;
    const int64_t section = largest > all / 4 ? largest : all / 4;
    return section + vectors < all - all / 4 ? section : 0;
}

/* By several nodes. */
static bool any_is_read_again(const fsdp_param_group *u)
{
    for (size_t i = 0; i < u->n_params; i++)
        if (u->params[i].in_slot && u->params[i].parameter->sink.n_readers > 1)
            return true;
    return false;
}

/* Over replicas sums of earlier micro-steps go with those of the last one. */
static bool sums_wait_for_replicas(const fsdp_param_group *u)
{
    if (u->replicate_group && u->no_all_reduce)
        return true;
    for (size_t i = 0; i < u->n_params; i++)
        if (u->params[i].partial)
            return true;
    return false;
}

/* Matrices get their places as they come, in front of the vectors. */
static void lay_out_section(fsdp_param_group *u, int64_t numel)
{
    u->slot_used = u->n_placed = 0;
    u->slot_numel = u->section_numel = numel;
    for (size_t i = 0; i < u->n_params; i++) {
        fsdp_param *p = &u->params[i];
        p->placed = p->in_slot && is_vector(p);
        p->order = 0;
        if (!p->placed)
            continue;
        p->grad_slot->offset = u->slot_numel;
        u->slot_numel += whole_numel(p);
    }
}

/* Places for all that is in the slot. `tables`: for rows, where there are some. */
static void lay_out_whole(fsdp_param_group *u, bool tables)
{
    u->slot_numel = 0;
    for (size_t i = 0; i < u->n_params; i++) {
        fsdp_param *p = &u->params[i];
        p->placed = p->in_slot;
        p->order = 0;
        if (!p->placed)
            continue;
        p->grad_slot->offset = u->slot_numel;
        u->slot_numel += tables && p->table.most ? fsdp_grad_rows_slot_numel(p) : whole_numel(p);
    }
    u->slot_used = u->section_numel = u->slot_numel;
}

/* --- its memory --- */

/* Memory for a slot as it is laid out, which the unit has from here on. */
static fsdp_status take_slot(fsdp_param_group *u)
{
    fsdp_grad_parts slots = open_parts(u);
    fsdp_buffer *slot;
    FSDP_TRY(fsdp_pool_take(&u->pools->slots, fsdp_grad_parts_bytes(u, &slots), &slot));
    /* Told apart here, ranks that lay it out differently do not write into each other's part. */
    fsdp_phase_info info = fsdp_slot_info(u, FSDP_KIND_GRADIENT, (size_t)u->slot_numel);
    fsdp_status status = fsdp_buffer_begin(slot, FSDP_PHASE_WRITE, &info);
    if (status != FSDP_OK) {
        fsdp_pool_give_back(&u->pools->slots, slot);
        return status;
    }
    u->slot = slots.buffer = slot;
    char *own = fsdp_grad_parts_of_rank(u, &slots, fsdp_group_rank(u->group));
#ifdef FSDP_DEBUG
    if (own)
        fsdp_device_memset(u->device, own, 0xff, (size_t)slots.numel * sizeof(float));
        /* NaN: the first contribution overwrites */
#endif
    fsdp_storage_set_data(u->slot_storage, own);
    return FSDP_OK;
}

/* It is not the unit's any more; what is in it is nobody's unless it was published. */
static void leave_slot(fsdp_param_group *u, fsdp_buffer *slot)
{
    fsdp_buffer_end(slot);
    fsdp_pool_give_back(&u->pools->slots, slot);
}

static void close_tables(fsdp_param_group *u)
{
    for (size_t i = 0; i < u->n_params; i++)
        fsdp_grad_rows_close(&u->params[i]);
}

static void drop_open_slot(fsdp_param_group *u)
{
    for (size_t i = 0; i < u->n_params; i++)
        u->params[i].touched = false;
    close_tables(u);
    if (!u->slot)
        return;
    fsdp_storage_set_data(u->slot_storage, NULL);
    leave_slot(u, u->slot);
    u->slot = NULL;
}

void fsdp_slot_was_reduced(fsdp_param_group *u)
{
    for (size_t i = 0; i < u->n_params; i++) {
        fsdp_param *p = &u->params[i];
        if (p->published_rows)
            fsdp_grad_rows_close(p);
        p->published = p->published_rows = false;
    }
    if (u->published)
        fsdp_pool_give_back(&u->pools->slots, u->published);
    u->published = NULL;
}

void fsdp_slot_drop(fsdp_param_group *u)
{
    if (u->published)
        fsdp_buffer_end(u->published);
    fsdp_slot_was_reduced(u);
    drop_open_slot(u);
}

/* What lays out all of the unit lays out what is published, too. */
static fsdp_status lay_out(fsdp_param_group *u)
{
    FSDP_TRY(fsdp_grad_rows_plan(u));
    const bool is_whole = !fsdp_param_group_syncs(u) || any_is_read_again(u) ||
                          sums_wait_for_replicas(u) || has_tables(u) ||
                          !fsdp_param_group_is_on_one_host(u);
    const int64_t section = is_whole ? 0 : section_numel(u);
    u->in_sections = section > 0;
    if (u->in_sections) {
        lay_out_section(u, section);
        return FSDP_OK;
    }
    FSDP_TRY(fsdp_param_group_reduce(u));
    lay_out_whole(u, true);
    return FSDP_OK;
}

/* What does not train has no place in a slot. What is published lies as it was laid out, and does
 * not move. */
static fsdp_status choose_params(fsdp_param_group *u)
{
    bool changes = false;
    for (size_t i = 0; i < u->n_params; i++)
        changes |= u->params[i].in_slot != fsdp_parameter_requires_grad(u->params[i].parameter);
    if (changes)
        FSDP_TRY(fsdp_param_group_reduce(u));
    for (size_t i = 0; i < u->n_params; i++)
        u->params[i].in_slot = fsdp_parameter_requires_grad(u->params[i].parameter);
    return FSDP_OK;
}

static fsdp_status open_slot(fsdp_param_group *u)
{
    FSDP_TRY(choose_params(u));
    FSDP_TRY(lay_out(u));
    fsdp_status status = take_slot(u);
    for (size_t i = 0; i < u->n_params && status == FSDP_OK; i++)
        status = fsdp_grad_rows_open(u, &u->params[i]);
    if (status != FSDP_OK)
        drop_open_slot(u);
    return status;
}

/* What `before` has of parameter i at `offset` goes where it is to lie now. */
static void move_gradient(const fsdp_param_group *u, size_t i, const float *before, int64_t offset)
{
    const fsdp_param *p = &u->params[i];
    const fsdp_kernels *k = u->device->kernels;
    if (!p->touched || !k)
        return;
    if (p->table.most)
        fsdp_grad_rows_spread(u, p, before + offset, p->grad_slot);
    else
        k->copy(u->device->context, fsdp_tensor_ptr(p->grad_slot), before + offset,
                (size_t)fsdp_tensor_numel(p->grad_slot) * sizeof(float));
}

/* Where a parameter's gradient lay. */
typedef struct slot_place {
    int64_t offset;
    bool placed;
} slot_place;

/* Another slot, in which every parameter has its whole place. */
static fsdp_status exchange_slot(fsdp_param_group *u, slot_place *places)
{
    fsdp_buffer *slot = u->slot;
    const float *before = u->slot_storage->data;
    const int64_t numel = u->slot_numel, used = u->slot_used, section = u->section_numel;
    for (size_t i = 0; i < u->n_params; i++)
        places[i] = (slot_place){u->params[i].grad_slot->offset, u->params[i].placed};
    lay_out_whole(u, false);
    fsdp_status status = take_slot(u);
    if (status != FSDP_OK) {
        for (size_t i = 0; i < u->n_params; i++) {
            u->params[i].grad_slot->offset = places[i].offset;
            u->params[i].placed = places[i].placed;
        }
        u->slot_numel = numel;
        u->slot_used = used;
        u->section_numel = section;
        return status;
    }
    for (size_t i = 0; i < u->n_params; i++)
        move_gradient(u, i, before, places[i].offset);
    leave_slot(u, slot);
    close_tables(u);
    u->in_sections = false;
    return FSDP_OK;
}

static fsdp_status widen_slot(fsdp_param_group *u)
{
    FSDP_TRY(fsdp_param_group_reduce(u));
    slot_place *places = fsdp_calloc(u->n_params, sizeof *places);
    if (!places)
        return FSDP_ERR_NOMEM;
    fsdp_trace_begin(FSDP_TRACE_SHARDING, "widen gradient slot", u->name);
    fsdp_status status = exchange_slot(u, places);
    fsdp_trace_end();
    fsdp_free(places);
    return status;
}

/* --- sections --- */

static bool is_complete(const fsdp_param_group *u)
{
    for (size_t i = 0; i < u->n_params; i++)
        if (u->params[i].touched && u->params[i].parameter->sink.n_readers)
            return false;
    return true;
}

static fsdp_status next_section(fsdp_param_group *u)
{
    FSDP_TRY(fsdp_param_group_publish(u));
    FSDP_TRY(fsdp_param_group_follow(u));
    return open_slot(u);
}

static bool has_room(const fsdp_param_group *u, const fsdp_param *p)
{
    return u->slot_used + whole_numel(p) <= u->section_numel;
}

static fsdp_status refuse_gradient(const fsdp_param_group *u, const fsdp_param *p)
{
    if (!fsdp_parameter_requires_grad(p->parameter))
        return fsdp_error(FSDP_ERR_STATE,
                          "'%s' of unit '%s' was frozen between a forward and its backward: freeze "
                          "between steps",
                          p->name, u->name);
    return fsdp_error(FSDP_ERR_STATE,
                      "'%s' of unit '%s' was unfrozen when the unit had gradients of this step "
                      "already: unfreeze between steps",
                      p->name, u->name);
}

static fsdp_status give_place(fsdp_param_group *u, fsdp_param *p)
{
    if (!has_room(u, p) && fsdp_param_group_syncs(u) && is_complete(u))
        FSDP_TRY(next_section(u));
    if (!p->in_slot) /* of which more may have been frozen */
        return refuse_gradient(u, p);
    if (p->placed) /* it may be whole */
        return FSDP_OK;
    if (!has_room(u, p))
        return widen_slot(u);
    p->grad_slot->offset = u->slot_used;
    u->slot_used += whole_numel(p);
    p->placed = true;
    p->order = u->n_placed++;
    return FSDP_OK;
}

/* --- backward writes --- */

/* The unit's slot is open, and p has a place in it. */
static fsdp_status enter_slot(fsdp_grad_sink *sink, fsdp_param_group **unit, fsdp_param **param)
{
    fsdp_parameter *parameter = fsdp_parameter_of_sink(sink);
    fsdp_param_group *u = parameter->owner;
    if (!u->pools)
        return fsdp_error(FSDP_ERR_STATE, "unit '%s' has not run a forward", u->name);
    fsdp_param *p = fsdp_param_group_find(u, parameter);
    FSDP_ASSERT(p);
    if (p->published || !u->published_section)
        FSDP_TRY(fsdp_param_group_reduce(u));
    if (!u->slot)
        FSDP_TRY(open_slot(u));
    if (!p->in_slot)
        return refuse_gradient(u, p);
    if (!p->placed)
        FSDP_TRY(give_place(u, p));
    FSDP_ASSERT(p->placed);
    *unit = u;
    *param = p;
    return FSDP_OK;
}

fsdp_status fsdp_param_group_target(fsdp_grad_sink *sink, fsdp_tensor *leaf, fsdp_tensor **dst,
                                    float *beta)
{
    fsdp_param_group *u;
    fsdp_param *p;
    (void)leaf;
    sink->read_whole = true; /* a head and its loss are at it before they are recorded */
    FSDP_TRY(enter_slot(sink, &u, &p));
    if (p->table.most)
        FSDP_TRY(widen_slot(u));
    *beta = p->touched ? 1.0f : 0.0f;
    p->touched = true;
    *dst = p->grad_slot;
    return FSDP_OK;
}

fsdp_status fsdp_param_group_target_rows(fsdp_grad_sink *sink, const int32_t *ids, int64_t n,
                                         int32_t padding_idx, fsdp_grad_rows *out)
{
    fsdp_param_group *u;
    fsdp_param *p;
    FSDP_TRY(enter_slot(sink, &u, &p));
    if (p->table.most && !fsdp_grad_rows_are_foreseen(p))
        FSDP_TRY(widen_slot(u));
    if (!p->table.most)
        return FSDP_OK;
    p->touched = true;
    return fsdp_grad_rows_take(u, p, ids, n, padding_idx, out);
}

/* reduce_dtype below float32: each gradient is rounded once, here, and still summed in float32. */
static fsdp_status round_slot(fsdp_param_group *u)
{
    fsdp_dtype dtype = u->options.mp_policy.reduce_dtype;
    if (dtype == FSDP_DTYPE_F32)
        return FSDP_OK;
    const fsdp_kernels *k = u->device->kernels;
    for (size_t i = 0; i < u->n_params; i++) {
        const fsdp_param *p = &u->params[i];
        fsdp_tensor *g = p->table.most ? p->table.rows : p->grad_slot, *rounded;
        if (!p->touched)
            continue;
        FSDP_TRY(fsdp_tensor_to(g, dtype, FSDP_TAG_COMM, &rounded));
        if (k)
            k->cast(u->device->context, fsdp_tensor_ptr(g), FSDP_DTYPE_F32,
                    fsdp_tensor_ptr(rounded), dtype, fsdp_tensor_numel(g));
        fsdp_tensor_release(rounded);
    }
    return FSDP_OK;
}

/* To the peers, in the slot: which gradients are there. */
static void write_flags(const fsdp_param_group *u)
{
    const fsdp_grad_parts parts = open_parts(u);
    unsigned char *flags = fsdp_grad_parts_flags(u, &parts, fsdp_group_rank(u->group));
    for (size_t i = 0; i < u->n_params && flags; i++) {
        const fsdp_param *p = &u->params[i];
        flags[i] = p->touched ? (unsigned char)(1 + p->order % 255) : 0;
        if (p->touched && p->table.most)
            fsdp_grad_rows_publish(u, &parts, p);
    }
}

static void become_published(fsdp_param_group *u)
{
    for (size_t i = 0; i < u->n_params; i++) {
        fsdp_param *p = &u->params[i];
        p->published = p->touched;
        p->published_rows = p->table.most > 0;
        p->touched = false;
    }
    u->published = u->slot;
    u->published_numel = u->slot_numel;
    u->published_section = u->in_sections;
    u->published_is_last = u->pools->last_micro_step;
    u->slot = NULL;
}

fsdp_status fsdp_param_group_publish(fsdp_param_group *u)
{
    if (!u->slot)
        return FSDP_OK;
    fsdp_trace_begin(FSDP_TRACE_SHARDING, "publish gradients", u->name);
    fsdp_status status = round_slot(u);
    write_flags(u);
    fsdp_storage_set_data(u->slot_storage, NULL);
    fsdp_buffer_end(u->slot);
    fsdp_param_group_tell(u, FSDP_UNIT_PUBLISH, NULL, 0);
    fsdp_trace_end();
    if (status == FSDP_OK)
        status = fsdp_param_group_reduce(u); /* a section before it */
    if (status == FSDP_OK)
        become_published(u);
    return status;
}

fsdp_status fsdp_param_group_follow(fsdp_param_group *u)
{
    fsdp_param_group *before = u->pools->pending;
    u->pools->pending = u->published ? u : NULL;
    return before && before != u ? fsdp_param_group_reduce(before) : FSDP_OK;
}
