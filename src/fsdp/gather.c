/* Gathering a unit and letting it go: Note [Three memories of a unit] in param_group.h. And who may
 * write to its parameters: nobody while it is gathered. */
#include "src/base/assert.h"
#include "src/trace/trace.h"
#include "src/fsdp/extension.h"
#include "src/fsdp/once_per_host.h"
#include "src/fsdp/state.h"

static fsdp_phase_info info_of(const fsdp_param_group *u, fsdp_phase_kind kind,
                               const fsdp_unit_part *part)
{
    fsdp_dtype dtype = u->options.mp_policy.param_dtype;
    return (fsdp_phase_info){.unit = u->number,
                             .step = u->step,
                             .kind = (uint16_t)kind,
                             .dtype = (uint16_t)dtype,
                             .bytes = (uint64_t)part->logical_numel * fsdp_dtype_size(dtype)};
}

/* --- write guard of locals --- */

static fsdp_status summoned_error(const fsdp_param_group *u)
{
    return fsdp_error(FSDP_ERR_STATE,
                      "unit '%s': its full parameters are summoned: fsdp_summon_full_params_end() "
                      "comes first",
                      u->name);
}

/* What is gathered would go stale: neither memory that peers read now nor a copy may be behind. */
static fsdp_status guard_begin(void *self)
{
    fsdp_param_group *u = self;
    if (u->summoned)
        return summoned_error(u);
    if (u->state != FSDP_UNIT_SHARDED)
        return fsdp_error(FSDP_ERR_STATE,
                          "unit '%s' is unsharded: its parameters cannot be written before reshard",
                          u->name);
    u->writers++;
    return FSDP_OK;
}

static void guard_end(void *self)
{
    fsdp_param_group *u = self;
    FSDP_ASSERT(u->writers > 0);
    u->writers--;
}

/* What is kept of a gather will not be read before the next one. */
static fsdp_status open_copy(fsdp_param_group *u)
{
    if (!u->gathered || u->copy_is_open)
        return FSDP_OK;
    fsdp_phase_info info = info_of(u, FSDP_KIND_WRITE_SHARD, &u->copied);
    FSDP_TRY(fsdp_buffer_begin(u->gathered, FSDP_PHASE_WRITE, &info));
    u->copy_is_open = true;
    return FSDP_OK;
}

static fsdp_status private_guard_begin(void *self)
{
    fsdp_param_group *u = self;
    FSDP_TRY(guard_begin(self));
    fsdp_status status = open_copy(u);
    if (status != FSDP_OK) {
        guard_end(self);
        return status;
    }
    u->unmirrored++;
    return FSDP_OK;
}

static fsdp_status master_guard_begin(void *self)
{
    fsdp_param_group *u = self;
    FSDP_TRY(guard_begin(self));
    if (u->master_writers == 0) {
        fsdp_phase_info info = info_of(u, FSDP_KIND_WRITE_SHARD, &u->zero_copy);
        fsdp_status status = fsdp_buffer_begin(u->master, FSDP_PHASE_WRITE, &info);
        if (status != FSDP_OK) {
            guard_end(self);
            return status;
        }
    }
    u->master_writers++;
    return FSDP_OK;
}

static void master_guard_end(void *self)
{
    fsdp_param_group *u = self;
    guard_end(self);
    if (--u->master_writers == 0)
        fsdp_buffer_end(u->master);
}

fsdp_param_group *fsdp_param_group_of_local(const fsdp_tensor *local)
{
    for (const fsdp_storage_guard *g = local->storage->guards; g; g = g->next)
        if (g->begin_write == private_guard_begin || g->begin_write == master_guard_begin)
            return g->self;
    return NULL;
}

/* What operations read is no place to write: it is a copy, or all ranks' master. */
static fsdp_status refuse_write(void *self)
{
    const fsdp_param_group *u = self;
    return fsdp_error(FSDP_ERR_STATE,
                      "unit '%s': fsdp_parameter_data() of a unit is read only: write "
                      "fsdp_parameter_local()",
                      u->name);
}

/* Whose part lies where `tensor` does. */
static const fsdp_param *param_at(const fsdp_param_group *u, const fsdp_tensor *tensor)
{
    for (size_t i = 0; i < u->n_params; i++) {
        const fsdp_tensor *data = u->params[i].data;
        if (data && data->storage == tensor->storage && tensor->offset >= data->offset &&
            tensor->offset < data->offset + fsdp_tensor_numel(data))
            return &u->params[i];
    }
    return NULL;
}

/* What is gathered is there to be read, and nothing else: on meta, too, so that a plan does not
 * pass where its run would fail. */
static fsdp_status check_gathered(void *self, const fsdp_tensor *tensor)
{
    const fsdp_param_group *u = self;
    if (u->state == FSDP_UNIT_UNSHARDED)
        return FSDP_OK;
    const fsdp_param *p = param_at(u, tensor);
    return fsdp_error(FSDP_ERR_STATE,
                      "'%s' of unit '%s' is resharded: fsdp_unit_unshard() comes before a read "
                      "outside of its module's forward and backward%s",
                      p ? p->name : "?", *u->name ? u->name : "root",
                      u->no_unshard_in_backward
                          ? "; in backward, too, after set_unshard_in_backward(false) "
                            "(--no-unshard-in-backward)"
                          : "");
}

void fsdp_param_group_set_guards(fsdp_param_group *u)
{
    u->guard =
        (fsdp_storage_guard){.begin_write = private_guard_begin, .end_write = guard_end, .self = u};
    u->master_guard = (fsdp_storage_guard){
        .begin_write = master_guard_begin, .end_write = master_guard_end, .self = u};
    u->gathered_guard =
        (fsdp_storage_guard){.check_read = check_gathered, .begin_write = refuse_write, .self = u};
}

void *fsdp_param_group_mirror(fsdp_parameter *parameter, fsdp_dtype *dtype)
{
    fsdp_param_group *u = parameter->owner;
    const fsdp_param *p = fsdp_param_group_find(u, parameter);
    if (!u->copy_is_open || p->zero_copy || fsdp_param_is_extended(p) || p->slice.runs != 1)
        return NULL;
    char *base = fsdp_buffer_data(u->gathered);
    u->unmirrored--;
    *dtype = u->options.mp_policy.param_dtype;
    return base ? base + (p->offset + (size_t)p->slice.first) * fsdp_dtype_size(*dtype) : NULL;
}

/* --- unshard, reshard --- */

static fsdp_pool *gathered_pool(const fsdp_param_group *u)
{
    return u->shard_group ? &u->pools->gathered : &u->pools->whole;
}

/* Cast this rank's rows of the parameters that are not zero-copy into the gathered buffer. */
static void write_own_rows(fsdp_param_group *u)
{
    char *base = fsdp_buffer_data(u->gathered);
    fsdp_dtype dtype = u->options.mp_policy.param_dtype;
    fsdp_trace_begin(FSDP_TRACE_SHARDING, "cast own rows", u->name);
    for (size_t i = 0; u->device->kernels && i < u->n_params; i++) {
        const fsdp_param *p = &u->params[i];
        if (!p->zero_copy && !fsdp_param_is_extended(p))
            fsdp_slice_write(u->device, &p->slice, fsdp_tensor_ptr(p->local), p->local->dtype,
                             base + p->offset * fsdp_dtype_size(dtype), dtype);
    }
    fsdp_trace_end();
}

/* Is there anything that is cast into the gathered buffer? */
static bool copies(const fsdp_param_group *u)
{
    for (size_t i = 0; i < u->n_params; i++)
        if (!u->params[i].zero_copy && !fsdp_param_is_extended(&u->params[i]))
            return true;
    return false;
}

void fsdp_param_group_drop_copy(fsdp_param_group *u)
{
    if (!u->gathered)
        return;
    fsdp_buffer_end(u->gathered);
    fsdp_pool_give_back(gathered_pool(u), u->gathered);
    u->gathered = NULL;
    u->copy_is_open = false;
}

/* Write own rows, unless what is kept has them. */
static fsdp_status gather_copied(fsdp_param_group *u)
{
    if (!copies(u))
        return FSDP_OK;
    const bool is_kept = u->gathered;
    const fsdp_phase_info info = info_of(u, FSDP_KIND_WRITE_SHARD, &u->copied);
    if (!is_kept)
        FSDP_TRY(
            fsdp_pool_take(gathered_pool(u), fsdp_unit_part_bytes(u, &u->copied), &u->gathered));
    if (!is_kept || u->unmirrored) {
        fsdp_status status = open_copy(u);
        if (status != FSDP_OK) {
            fsdp_param_group_drop_copy(u);
            return status;
        }
        write_own_rows(u);
    }
    if (u->copy_is_open)
        fsdp_buffer_end(u->gathered);
    u->copy_is_open = false;
    u->unmirrored = 0;
    fsdp_param_group_tell(u, FSDP_UNIT_GATHER, u->shard_group, info.bytes);
    return FSDP_OK;
}

/* One of the masters that are private to the rank: offloaded ones come in together. */
static fsdp_tensor *any_private(const fsdp_param_group *u)
{
    for (size_t i = 0; i < u->n_params; i++)
        if (!u->params[i].zero_copy)
            return u->params[i].local;
    return NULL;
}

/* Write own rows of whatever is not zero-copy. */
static fsdp_status gather(fsdp_param_group *u)
{
    const fsdp_tensor *masters = any_private(u);
    if (!masters)
        return FSDP_OK;
    FSDP_TRY(fsdp_tensor_begin_read(masters));
    fsdp_status status = gather_copied(u);
    if (status == FSDP_OK)
        status = fsdp_extension_pack(u);
    if (status != FSDP_OK)
        fsdp_param_group_drop_copy(u);
    fsdp_tensor_end_read(masters);
    return status;
}

/* What is offloaded only begins to come in: own rows are written when it is there. */
fsdp_status fsdp_param_group_prefetch(fsdp_param_group *u)
{
    if (u->state != FSDP_UNIT_SHARDED || u->writers || u->summoned)
        return FSDP_OK;
    u->announced = u->offload && u->n_params;
    FSDP_TRY(u->announced ? fsdp_tensor_prefetch(any_private(u)) : gather(u));
    u->state = FSDP_UNIT_GATHERING;
    return FSDP_OK;
}

/* Wait for the peers' rows of one part, and show them to operations. */
static fsdp_status read_part(const fsdp_param_group *u, fsdp_buffer *from,
                             const fsdp_unit_part *part, fsdp_storage *storage)
{
    if (!from)
        return FSDP_OK;
    fsdp_phase_info info = info_of(u, FSDP_KIND_ALL_GATHER, part);
    FSDP_TRY(fsdp_buffer_begin(from, FSDP_PHASE_READ, &info));
    fsdp_storage_set_data(storage, fsdp_buffer_data(from));
    return FSDP_OK;
}

/* Show what was hidden: to FSDP2 it is a gather among fewer ranks. */
static void show_part(const fsdp_param_group *u, const fsdp_buffer *from,
                      const fsdp_unit_part *part, fsdp_storage *storage)
{
    if (!from)
        return;
    fsdp_storage_set_data(storage, fsdp_buffer_data(from));
    if (u->shard_group)
        fsdp_group_count(u->shard_group, FSDP_KIND_ALL_GATHER,
                         info_of(u, FSDP_KIND_ALL_GATHER, part).bytes);
}

static void end_part(fsdp_buffer *from, fsdp_storage *storage)
{
    fsdp_storage_set_data(storage, NULL);
    if (from)
        fsdp_buffer_end(from);
}

static void become_unsharded(fsdp_param_group *u)
{
    u->state = FSDP_UNIT_UNSHARDED;
    fsdp_once_per_host_show(u, true);
    fsdp_param_group_tell(u, FSDP_UNIT_UNSHARD, u->shard_group,
                          (uint64_t)u->logical_numel *
                              fsdp_dtype_size(u->options.mp_policy.param_dtype));
}

/* Memory alone is no model: what nobody has written is not computed with. */
static fsdp_status check_values(const fsdp_param_group *u)
{
    size_t first = 0;
    while (first < u->n_params && u->params[first].local->has_values)
        first++;
    if (first == u->n_params || !u->device->kernels)
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_STATE,
        "the parameters of unit '%s' ('%s' and so on) have memory but no values: load "
        "a checkpoint, or draw them with fsdp_module_init()",
        u->name, u->params[first].name);
}

fsdp_status fsdp_param_group_check_gather(const fsdp_param_group *u)
{
    if (u->summoned)
        return summoned_error(u);
    if (u->writers)
        return fsdp_error(FSDP_ERR_STATE,
                          "unit '%s' is being written: end_write comes before unshard", u->name);
    return FSDP_OK;
}

fsdp_status fsdp_param_group_unshard(fsdp_param_group *u)
{
    if (u->state == FSDP_UNIT_UNSHARDED)
        return FSDP_OK;
    if (u->state == FSDP_UNIT_HIDDEN) {
        show_part(u, u->master, &u->zero_copy, u->view_storage);
        show_part(u, u->gathered, &u->copied, u->gathered_storage);
        become_unsharded(u);
        return FSDP_OK;
    }
    FSDP_TRY(fsdp_param_group_check_gather(u));
    FSDP_TRY(check_values(u));
    FSDP_TRY(fsdp_param_group_prefetch(u));
    if (u->announced)
        FSDP_TRY(gather(u));
    u->announced = false;
    FSDP_TRY(read_part(u, u->master, &u->zero_copy, u->view_storage));
    fsdp_status status = read_part(u, u->gathered, &u->copied, u->gathered_storage);
    if (status != FSDP_OK) {
        end_part(u->master, u->view_storage);
        return status;
    }
    status = fsdp_extension_unpack(u);
    if (status != FSDP_OK) {
        end_part(u->master, u->view_storage);
        end_part(u->gathered, u->gathered_storage);
        fsdp_param_group_reshard(u);
        return status;
    }
    become_unsharded(u);
    return FSDP_OK;
}

void fsdp_param_group_hide(fsdp_param_group *u)
{
    FSDP_ASSERT(u->state == FSDP_UNIT_UNSHARDED);
    if (u->unpacked) { /* of an extension each rank has a copy of its own, which is not kept */
        fsdp_param_group_reshard(u);
        return;
    }
    fsdp_storage_set_data(u->view_storage, NULL);
    fsdp_storage_set_data(u->gathered_storage, NULL);
    u->state = FSDP_UNIT_HIDDEN;
    fsdp_param_group_tell(u, FSDP_UNIT_RESHARD, NULL, 0);
}

void fsdp_param_group_reshard(fsdp_param_group *u)
{
    u->requested = false;
    if (u->state == FSDP_UNIT_SHARDED)
        return;
    if (u->state != FSDP_UNIT_GATHERING) {
        end_part(u->master, u->view_storage);
        end_part(u->gathered, u->gathered_storage);
    }
    fsdp_once_per_host_show(u, false);
    fsdp_extension_drop(u);
    if (fsdp_reshards_after_forward(u, u->is_root))
        fsdp_param_group_drop_copy(u);
    u->announced = false;
    u->state = FSDP_UNIT_SHARDED;
    fsdp_param_group_tell(u, FSDP_UNIT_RESHARD, NULL, 0);
}
