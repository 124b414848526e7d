/* See grad_buffer.h. */
#include "src/fsdp/grad_buffer.h"

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/fsdp/grad_lanes.h"
#include "src/fsdp/grad_own.h"
#include "src/fsdp/grad_reduce.h"
#include "src/fsdp/grad_rows.h"
#include "src/trace/trace.h"

enum {
    LEAST_IN_SECTIONS = 2 << 20 /* A group needs this many elements to use sections. In a smaller
                                   group, ranks would wait for each other too often. */
};

static int64_t whole_numel(const fsdp_param *p)
{
    return fsdp_aligned_numel(fsdp_param_numel(p));
}

fsdp_status fsdp_grad_buffer_init(fsdp_grad_buffer *b, const fsdp_param_context *context,
                                  fsdp_param *params, size_t n)
{
    int64_t numel = 0;
    *b = (fsdp_grad_buffer){.context = context,
                            .params = params,
                            .n_params = n,
                            .least_in_sections = LEAST_IN_SECTIONS};
    b->sources = fsdp_calloc((size_t)fsdp_param_context_world_size(context), sizeof *b->sources);
    b->flags = fsdp_calloc(n, sizeof *b->flags);
    if (!b->sources || !b->flags)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        numel += whole_numel(&params[i]);
    for (size_t i = 0; i < n; i++)
        params[i].grads = b;
    if (!context->group)
        return FSDP_OK;
    FSDP_TRY(fsdp_storage_from_memory(context->device, NULL, (size_t)numel * sizeof(float),
                                      &b->storage));
    for (size_t i = 0; i < n; i++) {
        const fsdp_parameter *parameter = params[i].parameter;
        FSDP_TRY(fsdp_tensor_over(b->storage, FSDP_DTYPE_F32, parameter->ndim, parameter->shape, 0,
                                  &params[i].grad.whole));
    }
    return FSDP_OK;
}

/* --- layout --- */

static fsdp_grad_parts open_parts(const fsdp_grad_buffer *b)
{
    return fsdp_grad_parts_of_buffer(b, b->open, b->numel, b->peer_numel);
}

static bool has_tables(const fsdp_grad_buffer *b)
{
    for (size_t i = 0; i < b->n_params; i++)
        if (b->params[i].grad.table.most)
            return true;
    return false;
}

/* Return the number of elements in a section's space for matrices. Return 0 if sections are not
 * used, because the group is small or a section would be almost as large as a whole buffer. */
static int64_t section_numel(const fsdp_grad_buffer *b)
{
    int64_t all = 0, largest = 0, vectors = 0;
    for (size_t i = 0; i < b->n_params; i++) {
        const fsdp_param *p = &b->params[i];
        const int64_t numel = p->grad.in_buffer ? whole_numel(p) : 0;
        all += numel;
        if (fsdp_param_is_vector(p))
            vectors += numel;
        else if (numel > largest)
            largest = numel;
    }
    if (all < b->least_in_sections)
        return 0;
    const int64_t section = largest > all / 4 ? largest : all / 4;
    return section + vectors < all - all / 4 ? section : 0;
}

/* Return true if several nodes that backward has yet to run read the same parameter. */
static bool any_is_read_again(const fsdp_grad_buffer *b)
{
    for (size_t i = 0; i < b->n_params; i++)
        if (b->params[i].grad.in_buffer && b->params[i].parameter->sink.n_readers > 1)
            return true;
    return false;
}

/* Return true if some gradients are summed over the shard group in one reduce, and over the
 * replicas only in a later one. Either the next reduce will postpone the sum over the replicas,
 * because no_all_reduce is set, or an earlier reduce has postponed it. */
static bool sums_wait_for_replicas(const fsdp_grad_buffer *b)
{
    if (b->context->replicate_group && b->no_all_reduce)
        return true;
    for (size_t i = 0; i < b->n_params; i++)
        if (b->params[i].grad.partial)
            return true;
    return false;
}

/* Lay out a section. The first `numel` elements are for matrices, which get places when their
 * gradients arrive. The places of all vectors follow. */
static void lay_out_section(fsdp_grad_buffer *b, int64_t numel)
{
    b->used = b->n_placed = 0;
    b->numel = b->section_numel = numel;
    for (size_t i = 0; i < b->n_params; i++) {
        fsdp_param *p = &b->params[i];
        p->grad.placed = p->grad.in_buffer && fsdp_param_is_vector(p);
        p->grad.order = 0;
        if (!p->grad.placed)
            continue;
        p->grad.whole->offset = b->numel;
        b->numel += whole_numel(p);
    }
}

static void place_in_whole(fsdp_grad_buffer *b, fsdp_param *p, bool tables)
{
    p->grad.placed = p->grad.in_buffer;
    p->grad.order = 0;
    if (!p->grad.placed)
        return;
    p->grad.whole->offset = b->numel;
    p->grad.peer_offset = b->peer_numel;
    const bool has_table = tables && p->grad.table.most;
    b->numel += has_table ? fsdp_grad_rows_numel(p) : whole_numel(p);
    b->peer_numel +=
        has_table ? fsdp_grad_rows_numel(p) : fsdp_aligned_numel(fsdp_param_most_numel(p));
}

/* Assign places to all parameters that train. If `tables` is true, the place of a parameter that
 * has a table is only as large as the table. Where products are joined, the places are in the order
 * of the parameters' memory (place_params() in param_storage.c), so that one product computes the
 * gradients of joined layers. */
static void lay_out_whole(fsdp_grad_buffer *b, bool tables)
{
    const bool sorted = b->context->device->traits->joins_products;
    b->numel = b->peer_numel = 0;
    for (int pass = 0; pass < (sorted ? 2 : 1); pass++)
        for (size_t i = 0; i < b->n_params; i++)
            if (!sorted || fsdp_param_is_vector(&b->params[i]) == pass)
                place_in_whole(b, &b->params[i], tables);
    b->used = b->section_numel = b->numel;
}

/* --- taking and exchanging buffers --- */

/* Take from the pool a buffer that is large enough for the layout, and open this buffer. */
static fsdp_status take_buffer(fsdp_grad_buffer *b)
{
    const fsdp_device *device = b->context->device;
    fsdp_grad_parts parts = open_parts(b);
    fsdp_buffer *buffer;
    FSDP_TRY(
        fsdp_pool_acquire(&b->context->comm->grads, fsdp_grad_parts_bytes(b, &parts), &buffer));
    /* If the layouts of the ranks differ in size, fsdp_buffer_begin() returns an error on all
     * ranks. Without this check, a rank could write to the part of another rank. */
    const fsdp_phase_info info = fsdp_grad_phase(b, FSDP_KIND_GRADIENT, (size_t)b->numel);
    fsdp_status status = fsdp_buffer_begin(buffer, FSDP_PHASE_WRITE, &info);
    if (status != FSDP_OK) {
        fsdp_pool_release(&b->context->comm->grads, buffer);
        return status;
    }
    b->is_open = true;
    b->open = parts.buffer = buffer;
    char *own = fsdp_grad_parts_of_rank(b, &parts, fsdp_group_rank(b->context->group));
#ifdef FSDP_DEBUG
    if (own) /* Fill the part with NaN. If the first contribution to an element is wrongly added
                instead of stored, the element stays NaN. */
        fsdp_device_memset(device, own, 0xff, (size_t)parts.numel * sizeof(float));
#else
    (void)device;
#endif
    fsdp_storage_set_data(b->storage, own);
    return FSDP_OK;
}

static void give_back(fsdp_grad_buffer *b, fsdp_buffer *buffer)
{
    fsdp_buffer_end(buffer);
    fsdp_pool_release(&b->context->comm->grads, buffer);
}

static void close_tables(fsdp_grad_buffer *b)
{
    for (size_t i = 0; i < b->n_params; i++)
        fsdp_grad_rows_close(&b->params[i]);
}

static void drop_open_buffer(fsdp_grad_buffer *b)
{
    for (size_t i = 0; i < b->n_params; i++)
        b->params[i].grad.touched = false;
    close_tables(b);
    if (b->is_open && !b->context->group)
        fsdp_grad_own_drop(b);
    b->is_open = false;
    if (!b->open)
        return;
    fsdp_storage_set_data(b->storage, NULL);
    give_back(b, b->open);
    b->open = NULL;
}

/* Choose the layout of the next buffer. If it is a whole layout, it changes the offsets of
 * gradients, and the posted buffer still uses the current offsets. So reduce the posted buffer
 * first. */
static fsdp_status choose_layout(fsdp_grad_buffer *b)
{
    FSDP_TRY(fsdp_grad_rows_plan(b));
    if (!b->context->group) {
        fsdp_grad_own_lay_out(b);
        return fsdp_grad_reduce(b);
    }
    const bool is_whole = !fsdp_grad_buffer_syncs(b) || any_is_read_again(b) ||
                          sums_wait_for_replicas(b) || has_tables(b) ||
                          !fsdp_param_context_has_one_memory(b->context);
    const int64_t section = is_whole ? 0 : section_numel(b);
    b->in_sections = section > 0;
    if (b->in_sections) {
        lay_out_section(b, section);
        return FSDP_OK;
    }
    FSDP_TRY(fsdp_grad_reduce(b));
    lay_out_whole(b, true);
    return FSDP_OK;
}

/* Set `in_buffer` of each parameter to true if the parameter trains, otherwise to false. The layout
 * of the posted buffer depends on the current values of `in_buffer`. So if any of them will change,
 * first reduce the posted buffer. */
static fsdp_status choose_params(fsdp_grad_buffer *b)
{
    bool changes = false;
    for (size_t i = 0; i < b->n_params; i++)
        changes |=
            b->params[i].grad.in_buffer != fsdp_parameter_requires_grad(b->params[i].parameter);
    if (changes)
        FSDP_TRY(fsdp_grad_reduce(b));
    for (size_t i = 0; i < b->n_params; i++)
        b->params[i].grad.in_buffer = fsdp_parameter_requires_grad(b->params[i].parameter);
    return FSDP_OK;
}

static fsdp_status open_buffer(fsdp_grad_buffer *b)
{
    FSDP_TRY(choose_params(b));
    FSDP_TRY(choose_layout(b));
    fsdp_status status = b->context->group ? take_buffer(b) : FSDP_OK;
    for (size_t i = 0; i < b->n_params && status == FSDP_OK; i++)
        status = fsdp_grad_rows_open(b, &b->params[i]);
    b->is_open = status == FSDP_OK;
    if (status != FSDP_OK)
        drop_open_buffer(b);
    return status;
}

/* Copy the gradient of parameter i from the old buffer to its place in the new one. `before` is
 * this rank's part of the old buffer. The gradient begins at element `offset` of `before`. */
static void move_gradient(const fsdp_grad_buffer *b, size_t i, const float *before, int64_t offset)
{
    const fsdp_param *p = &b->params[i];
    const fsdp_kernels *k = b->context->device->kernels;
    if (!p->grad.touched || !k)
        return;
    if (p->grad.table.most)
        fsdp_grad_rows_spread(b, p, fsdp_grad_rows_in_place(p, before + offset), p->grad.whole);
    else
        k->copy(b->context->device->context, fsdp_tensor_ptr(p->grad.whole), before + offset,
                (size_t)fsdp_tensor_numel(p->grad.whole) * sizeof(float));
}

/* A parameter's place in the old buffer. */
typedef struct grad_place {
    int64_t offset, peer_offset;
    bool placed;
} grad_place;

/* Exchange the open buffer for a whole buffer without tables. `places` [n_params] is scratch
 * memory. */
static fsdp_status exchange_buffer(fsdp_grad_buffer *b, grad_place *places)
{
    fsdp_buffer *old = b->open;
    const float *before = b->storage->data;
    const int64_t numel = b->numel, peer_numel = b->peer_numel, used = b->used,
                  section = b->section_numel;
    for (size_t i = 0; i < b->n_params; i++)
        places[i] = (grad_place){b->params[i].grad.whole->offset, b->params[i].grad.peer_offset,
                                 b->params[i].grad.placed};
    lay_out_whole(b, false);
    fsdp_status status = take_buffer(b);
    if (status != FSDP_OK) {
        for (size_t i = 0; i < b->n_params; i++) {
            b->params[i].grad.whole->offset = places[i].offset;
            b->params[i].grad.peer_offset = places[i].peer_offset;
            b->params[i].grad.placed = places[i].placed;
        }
        b->numel = numel;
        b->peer_numel = peer_numel;
        b->used = used;
        b->section_numel = section;
        return status;
    }
    for (size_t i = 0; i < b->n_params; i++)
        move_gradient(b, i, before, places[i].offset);
    give_back(b, old);
    close_tables(b);
    b->in_sections = false;
    return FSDP_OK;
}

static fsdp_status widen_buffer(fsdp_grad_buffer *b)
{
    FSDP_TRY(fsdp_grad_reduce(b));
    grad_place *places = fsdp_calloc(b->n_params, sizeof *places);
    if (!places)
        return FSDP_ERR_NOMEM;
    fsdp_trace_begin(FSDP_TRACE_SHARDING, "widen gradient buffer", b->context->name);
    fsdp_status status = exchange_buffer(b, places);
    fsdp_trace_end();
    fsdp_free(places);
    return status;
}

/* --- sections --- */

static bool is_complete(const fsdp_grad_buffer *b)
{
    for (size_t i = 0; i < b->n_params; i++)
        if (b->params[i].grad.touched && b->params[i].parameter->sink.n_readers)
            return false;
    return true;
}

static fsdp_status next_section(fsdp_grad_buffer *b)
{
    FSDP_TRY(fsdp_grad_buffer_post(b));
    FSDP_TRY(fsdp_grad_buffer_reduce_previous(b));
    return open_buffer(b);
}

static bool has_room(const fsdp_grad_buffer *b, const fsdp_param *p)
{
    return b->used + whole_numel(p) <= b->section_numel;
}

static fsdp_status refuse_gradient(const fsdp_grad_buffer *b, const fsdp_param *p)
{
    if (!fsdp_parameter_requires_grad(p->parameter))
        return fsdp_error(FSDP_ERR_STATE,
                          "'%s' of unit '%s' was frozen between a forward and its backward: freeze "
                          "between steps",
                          p->name, b->context->name);
    return fsdp_error(FSDP_ERR_STATE,
                      "'%s' of unit '%s' was unfrozen when the unit had gradients of this step "
                      "already: unfreeze between steps",
                      p->name, b->context->name);
}

static fsdp_status give_place(fsdp_grad_buffer *b, fsdp_param *p)
{
    if (!has_room(b, p) && fsdp_grad_buffer_syncs(b) && is_complete(b))
        FSDP_TRY(next_section(b));
    /* p may have been frozen since this section began. In that case, next_section() has cleared
     * in_buffer, and p has no place. */
    if (!p->grad.in_buffer)
        return refuse_gradient(b, p);
    if (p->grad.placed) /* In a whole buffer, all places are assigned already. */
        return FSDP_OK;
    if (!has_room(b, p))
        return widen_buffer(b);
    p->grad.whole->offset = b->used;
    b->used += whole_numel(p);
    p->grad.placed = true;
    p->grad.order = b->n_placed++;
    return FSDP_OK;
}

/* --- targets of gradients --- */

/* Give p a place in the open buffer. Open a buffer if none is open. */
static fsdp_status make_place(fsdp_grad_buffer *b, fsdp_param *p)
{
    if (!b->context->comm)
        return fsdp_error(FSDP_ERR_STATE, "unit '%s' has not run a forward", b->context->name);
    if (p->grad.posted || !b->posted.is_section)
        FSDP_TRY(fsdp_grad_reduce(b));
    if (!b->is_open)
        FSDP_TRY(open_buffer(b));
    if (!p->grad.in_buffer)
        return refuse_gradient(b, p);
    if (!b->context->group)
        return fsdp_grad_own_make_place(b, p);
    if (!p->grad.placed)
        FSDP_TRY(give_place(b, p));
    FSDP_ASSERT(p->grad.placed);
    return FSDP_OK;
}

/* p's gradient is stored as a table of rows. Replace it by a whole gradient with the same values.
 */
static fsdp_status leave_table(fsdp_grad_buffer *b, fsdp_param *p)
{
    return b->context->group ? widen_buffer(b) : fsdp_grad_own_widen(b, p);
}

fsdp_status fsdp_grad_buffer_target(fsdp_grad_sink *sink, fsdp_tensor *leaf, fsdp_tensor **dst,
                                    float *beta)
{
    fsdp_param *p = fsdp_param_of(fsdp_parameter_of_sink(sink));
    (void)leaf;
    /* The calling operation reads the whole leaf, so read_whole must be set. An operation sets it
     * when it records its node. Most operations record their node in forward and call this function
     * in backward, so they have set it already. But a head with a fused loss calls this function in
     * forward, before it records its node. */
    sink->read_whole = true;
    FSDP_TRY(make_place(p->grads, p));
    if (p->grad.table.most)
        FSDP_TRY(leave_table(p->grads, p));
    *beta = p->grad.touched ? 1.0f : 0.0f;
    p->grad.touched = true;
    *dst = p->grad.whole;
    return FSDP_OK;
}

fsdp_status fsdp_grad_buffer_target_rows(fsdp_grad_sink *sink, const int32_t *ids, int64_t n,
                                         int32_t padding_idx, fsdp_grad_rows *out)
{
    fsdp_param *p = fsdp_param_of(fsdp_parameter_of_sink(sink));
    FSDP_TRY(make_place(p->grads, p));
    if (p->grad.table.most && !fsdp_grad_rows_have_room(p))
        FSDP_TRY(leave_table(p->grads, p));
    if (!p->grad.table.most)
        return FSDP_OK;
    p->grad.touched = true;
    return fsdp_grad_rows_reserve(p->grads, p, ids, n, padding_idx, out);
}

/* --- posting --- */

static fsdp_status round_gradients(const fsdp_grad_buffer *b)
{
    for (size_t i = 0; i < b->n_params; i++)
        if (b->params[i].grad.touched)
            FSDP_TRY(fsdp_grad_round(b, &b->params[i]));
    return FSDP_OK;
}

/* Write this rank's flags. The flag of a parameter without a gradient is 0. The flag of any other
 * parameter is `1 + grad.order % 255`, which is at least 1. For each table, also write the list of
 * its touched rows. Also declare which elements the peers read (fsdp_buffer_wrote()). But if the
 * ranks of a host will add up their whole gradients, do not declare the elements of these
 * gradients: fsdp_grad_hosts_add_up() declares the sums. */
static void write_flags(const fsdp_grad_buffer *b)
{
    const fsdp_grad_parts parts = open_parts(b);
    const bool adds_up = fsdp_grad_terms_exist(b->context, b->context->group);
    if (!b->context->device->kernels)
        return;
    for (size_t i = 0; i < b->n_params; i++) {
        const fsdp_param *p = &b->params[i];
        b->flags[i] = p->grad.touched ? (unsigned char)(1 + p->grad.order % 255) : 0;
        if (p->grad.touched && p->grad.table.most)
            fsdp_grad_rows_post(b, &parts, p);
        else if (p->grad.touched && !adds_up)
            fsdp_grad_parts_name_whole(b, &parts, p);
    }
    fsdp_grad_parts_write_flags(b, &parts);
}

static void become_posted(fsdp_grad_buffer *b)
{
    for (size_t i = 0; i < b->n_params; i++) {
        fsdp_param *p = &b->params[i];
        p->grad.posted = p->grad.touched;
        p->grad.posted_rows = p->grad.table.most > 0;
        p->grad.touched = false;
    }
    b->posted = (fsdp_posted_gradients){.exists = true,
                                        .buffer = b->open,
                                        .numel = b->numel,
                                        .peer_numel = b->peer_numel,
                                        .is_section = b->in_sections,
                                        .is_last = b->context->comm->last_micro_step,
                                        .is_new = true};
    b->open = NULL;
    b->is_open = false;
}

static fsdp_status post_buffer(fsdp_grad_buffer *b)
{
    const fsdp_status status = round_gradients(b);
    write_flags(b);
    fsdp_storage_set_data(b->storage, NULL);
    fsdp_buffer_end(b->open);
    return status;
}

fsdp_status fsdp_grad_buffer_post(fsdp_grad_buffer *b)
{
    if (!b->is_open)
        return FSDP_OK;
    fsdp_trace_begin(FSDP_TRACE_SHARDING, "post gradients", b->context->name);
    const uint64_t sent = b->context->group ? fsdp_grad_reduce_sent_bytes(b) : 0;
    fsdp_status status = b->context->group ? post_buffer(b) : fsdp_grad_own_post(b);
    fsdp_param_context_report(b->context, FSDP_UNIT_POST, b->context->group, sent);
    fsdp_trace_end();
    if (status == FSDP_OK)
        status = fsdp_grad_reduce(b); /* reduce the buffer that this group posted before */
    if (status == FSDP_OK)
        become_posted(b);
    return status;
}

/* Do the next stage of all buffers in flight, except buffer `except`. First do the stages that may
 * begin to send. Then do the stages that wait for sums over the replicas, which were sent at an
 * earlier call. */
static fsdp_status reduce_stages(const fsdp_comm_context *comm, const fsdp_grad_buffer *except)
{
    for (fsdp_grad_buffer *it = comm->in_flight; it; it = it->next_in_flight)
        it->waits_for_lanes = it->lanes.exists;
    for (int waiting = 0; waiting < 2; waiting++)
        for (fsdp_grad_buffer *it = comm->in_flight; it; it = it->next_in_flight)
            if (it != except && it->waits_for_lanes == waiting)
                FSDP_TRY(fsdp_grad_reduce_stage(it));
    return FSDP_OK;
}

/* Do the next stage of all buffers in flight, except buffer `except`. From the list of buffers in
 * flight, remove buffer `except` and the buffers whose reduce is complete. */
static fsdp_status advance_others(fsdp_comm_context *comm, const fsdp_grad_buffer *except)
{
    FSDP_TRY(reduce_stages(comm, except));
    for (fsdp_grad_buffer **at = &comm->in_flight, *it; (it = *at) != NULL;) {
        if (it != except && fsdp_grad_is_in_flight(it)) {
            at = &it->next_in_flight;
            continue;
        }
        *at = it->next_in_flight;
        it->next_in_flight = NULL;
    }
    return FSDP_OK;
}

fsdp_status fsdp_grad_buffer_reduce_previous(fsdp_grad_buffer *b)
{
    fsdp_grad_buffer **end = &b->context->comm->in_flight;
    if (!b->posted.exists || !b->posted.is_new)
        return advance_others(b->context->comm, NULL);
    b->posted.is_new = false;
    FSDP_TRY(fsdp_grad_reduce_send(b));
    FSDP_TRY(advance_others(b->context->comm, b));
    while (*end)
        end = &(*end)->next_in_flight;
    *end = b;
    return FSDP_OK;
}

fsdp_status fsdp_grad_buffer_reduce_all(fsdp_comm_context *comm)
{
    while (comm->in_flight)
        FSDP_TRY(advance_others(comm, NULL));
    return FSDP_OK;
}

/* --- dropping sums and buffers --- */

bool fsdp_grad_buffer_has_sums(const fsdp_grad_buffer *b)
{
    for (size_t i = 0; i < b->n_params; i++)
        if (b->params[i].grad.n_sums || b->params[i].grad.partial)
            return true;
    return b->is_open || fsdp_grad_is_in_flight(b);
}

void fsdp_grad_buffer_drop_sums(fsdp_grad_buffer *b)
{
    for (size_t i = 0; i < b->n_params; i++)
        b->params[i].parameter->sink.n_dropped += b->params[i].grad.n_sums > 0;
    fsdp_grad_free_sums(b);
}

static void free_gradients(fsdp_grad_buffer *b)
{
    fsdp_grad_free_sums(b);
    for (size_t i = 0; i < b->n_params; i++) {
        fsdp_tensor_release(b->params[i].grad.partial);
        b->params[i].grad.partial = NULL;
    }
    fsdp_grad_drop_posted(b);
    fsdp_grad_lanes_drop(b);
    b->next_in_flight = NULL;
    drop_open_buffer(b);
}

void fsdp_grad_buffer_drop(fsdp_grad_buffer *b)
{
    fsdp_grad_rows_end_backward(b);
    for (size_t i = 0; i < b->n_params; i++) {
        const fsdp_param_grad *g = &b->params[i].grad;
        b->params[i].parameter->sink.n_dropped +=
            g->touched || g->posted || g->partial || g->n_sums;
    }
    free_gradients(b);
}

void fsdp_grad_buffer_fini(fsdp_grad_buffer *b)
{
    free_gradients(b);
    for (size_t i = 0; i < b->n_params; i++) {
        fsdp_grad_rows_fini(&b->params[i]);
        fsdp_tensor_release(b->params[i].grad.whole);
    }
    fsdp_storage_release(b->storage);
    fsdp_free(b->sources);
    fsdp_free(b->flags);
}
