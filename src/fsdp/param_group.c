/* Creates and destroys param groups, adopts their parameters, and changes how parameters are
 * stored. */
#include "src/fsdp/param_group.h"

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/comm/cards/cards.h"
#include "src/fsdp/pending_dtype.h"
#include "src/nn/quantized.h"

/* --- creating --- */

/* Return `group`, or NULL if it has only one rank and needs no communication. */
static fsdp_group *unless_alone(fsdp_group *group)
{
    return fsdp_group_world_size(group) > 1 ? group : NULL;
}

static void choose_groups(fsdp_param_context *c, fsdp_group *group)
{
    const fsdp_device_mesh *mesh = c->options.mesh;
    if (mesh) {
        const int last = fsdp_device_mesh_ndim(mesh) - 1;
        group = fsdp_device_mesh_group(mesh, last);
        c->replicate_group = last ? unless_alone(fsdp_device_mesh_group(mesh, 0)) : NULL;
    }
    c->group = unless_alone(group);
    c->shard_group = c->options.no_shard ? NULL : c->group;
}

static fsdp_status check_quantized(const fsdp_param *p)
{
    const fsdp_param_context *c = p->context;
    if (!p->parameter->quantized)
        return FSDP_OK;
    if (!fsdp_device_reads_quantized(c->device))
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "'%s' is stored in NF4 (--load-in-4bit), which the device '%s' cannot "
                          "read: use --device cpu",
                          p->name, c->device->kernels->name);
    if (c->offload)
        return fsdp_error(
            FSDP_ERR_UNSUPPORTED,
            "'%s' is stored in NF4 (--load-in-4bit), which stays in memory: it cannot "
            "be in a file (--offload-dir)",
            p->name);
    if (p->requires_grad)
        return fsdp_error(
            FSDP_ERR_INVALID,
            "'%s' is stored in NF4 (--load-in-4bit), so it cannot be trained: train an "
            "adapter for it (--lora-r)",
            p->name);
    return FSDP_OK;
}

static fsdp_status init_param(fsdp_param_group *g, fsdp_param *p, const fsdp_named_parameter *named)
{
    p->group = g;
    p->context = &g->context;
    p->parameter = named->parameter;
    p->requires_grad = fsdp_parameter_requires_grad(p->parameter);
    if (g->context.options.sync_module_states)
        FSDP_TRY(fsdp_param_sync_loaded_dtype(p));
    p->dtype = fsdp_param_pending_dtype(p);
    p->name = fsdp_strdup(named->name);
    if (!p->name)
        return FSDP_ERR_NOMEM;
    g->numel += fsdp_param_numel(p);
    FSDP_TRY(check_quantized(p));
    return fsdp_param_choose_shard(p);
}

static fsdp_status create_memories(fsdp_param_group *g)
{
    const fsdp_param_context *c = &g->context;
    FSDP_TRY(fsdp_group_find_cards(c->group, c->device));
    FSDP_TRY(fsdp_group_find_cards(c->replicate_group, c->device));
    const fsdp_param_guards guards = fsdp_param_group_guards(g);
    return fsdp_param_memories_create(&guards, g->params, g->n_params, &g->memories);
}

/* Create p's tensors, and copy the parameter's values. */
static fsdp_status fill_param(fsdp_param_group *g, fsdp_param *p)
{
    FSDP_TRY(fsdp_param_create_tensors(p, &g->memories));
    if (g->context.options.sync_module_states)
        return fsdp_param_sync_values(p);
    const fsdp_tensor *values = p->parameter->data;
    return values && !fsdp_device_is_meta(fsdp_tensor_device(values))
               ? fsdp_tensor_take_values(values, &p->slice, p->local)
               : FSDP_OK;
}

static fsdp_status create_params(fsdp_param_group *g, const fsdp_named_parameter *parameters,
                                 size_t n)
{
    g->params = fsdp_calloc(n, sizeof *g->params);
    if (!g->params)
        return FSDP_ERR_NOMEM;
    g->n_params = n;
    for (size_t i = 0; i < n; i++)
        FSDP_TRY(init_param(g, &g->params[i], &parameters[i]));
    FSDP_TRY(fsdp_grad_buffer_init(&g->grads, &g->context, g->params, n));
    FSDP_TRY(create_memories(g));
    for (size_t i = 0; i < n; i++)
        FSDP_TRY(fill_param(g, &g->params[i]));
    return FSDP_OK;
}

fsdp_status fsdp_param_group_create(fsdp_device *device, fsdp_group *group,
                                    const fsdp_fully_shard_options *options,
                                    const fsdp_named_parameter *parameters, size_t n,
                                    fsdp_param_group **created)
{
    fsdp_param_group *g = fsdp_calloc(1, sizeof *g);
    if (!g)
        return FSDP_ERR_NOMEM;
    fsdp_param_context *c = &g->context;
    c->device = device;
    c->options = *options;
    c->options.ignored_params =
        NULL; /* the pointer is borrowed, and is valid only during this call */
    choose_groups(c, group);
    c->name = fsdp_strdup("");
    fsdp_status status = c->name ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && options->offload_policy.kind == FSDP_OFFLOAD_DIR)
        status = fsdp_offload_unit_create(device, options->offload_policy.dir, &c->offload);
    if (status == FSDP_OK)
        status = create_params(g, parameters, n);
    if (status != FSDP_OK) {
        fsdp_param_group_destroy(g);
        return status;
    }
    *created = g;
    return FSDP_OK;
}

static fsdp_status apply_pending_dtype(fsdp_parameter_owner *owner)
{
    return fsdp_param_group_apply_pending_dtypes(((fsdp_param *)(void *)owner)->group);
}

static void *own_rows_of_copy(fsdp_parameter_owner *owner, fsdp_dtype *dtype)
{
    return fsdp_param_own_rows_of_copy((const fsdp_param *)(const void *)owner, dtype);
}

/* Implements fsdp_grad_sink.note_lookups. */
static void note_lookups(fsdp_grad_sink *sink, int64_t n)
{
    const fsdp_param *p = fsdp_param_of(fsdp_parameter_of_sink(sink));
    if (p->storage->note_lookups)
        p->storage->note_lookups(p, n);
}

void fsdp_param_group_adopt(fsdp_param_group *g)
{
    static const fsdp_parameter_owner_ops ops = {.apply_pending_dtype = apply_pending_dtype,
                                                 .own_rows_of_copy = own_rows_of_copy};
    for (size_t i = 0; i < g->n_params; i++) {
        fsdp_param *p = &g->params[i];
        fsdp_param_adopt(p, &ops);
        p->parameter->sink.target = fsdp_grad_buffer_target;
        p->parameter->sink.rows = fsdp_grad_buffer_target_rows;
        p->parameter->sink.note_lookups = note_lookups;
    }
}

fsdp_status fsdp_param_group_set_name(fsdp_param_group *g, const char *name)
{
    char *copy = fsdp_strdup(name);
    if (!copy)
        return FSDP_ERR_NOMEM;
    fsdp_free(g->context.name);
    g->context.name = copy;
    if (g->context.offload)
        fsdp_offload_unit_set_name(g->context.offload, name);
    return FSDP_OK;
}

int64_t fsdp_param_group_trained_bytes(const fsdp_param_group *g)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < g->n_params; i++)
        bytes += fsdp_param_trained_bytes(&g->params[i]);
    return bytes;
}

void fsdp_param_group_destroy(fsdp_param_group *g)
{
    if (!g)
        return;
    fsdp_grad_buffer_fini(&g->grads);
    if (g->context.comm)
        fsdp_param_group_reshard(g);
    fsdp_param_group_drop_copies(g);
    for (size_t i = 0; i < g->n_params; i++) {
        fsdp_param_disown(&g->params[i]);
        fsdp_param_release_tensors(&g->params[i]);
        fsdp_free(g->params[i].name);
    }
    fsdp_param_memories_destroy(&g->memories);
    fsdp_offload_unit_release(g->context.offload);
    fsdp_free(g->params);
    fsdp_free(g->context.name);
    fsdp_free(g);
}

/* --- changing the storage --- */

/* The fields of an fsdp_param that describe how it was stored. */
typedef struct stored {
    const fsdp_param_storage *storage;
    fsdp_param_memory *memory;
    size_t offset;
    fsdp_dtype dtype;
    fsdp_tensor *local, *data;
} stored;

static stored take_stored(fsdp_param *p)
{
    const stored old = {p->storage, p->memory, p->offset, p->dtype, p->local, p->data};
    p->local = p->data = NULL;
    return old;
}

static void set_stored(fsdp_param *p, const stored *old)
{
    p->storage = old->storage;
    p->memory = old->memory;
    p->offset = old->offset;
    p->dtype = old->dtype;
    p->local = old->local;
    p->data = old->data;
}

static fsdp_status create_tensors(fsdp_param_group *g, const stored *old)
{
    FSDP_TRY(create_memories(g));
    for (size_t i = 0; i < g->n_params; i++) {
        fsdp_param *p = &g->params[i];
        FSDP_TRY(fsdp_param_create_tensors(p, &g->memories));
        const fsdp_slice all = {.runs = 1, .length = fsdp_tensor_numel(p->local)};
        const bool same_device = fsdp_tensor_device(old[i].local) == g->context.device;
        if (!same_device || p->parameter->values_are_due)
            continue;
        FSDP_TRY(fsdp_tensor_take_values(old[i].local, &all, p->local));
        p->local->has_values = old[i].local->has_values;
    }
    return FSDP_OK;
}

/* Release p's tensors. Then set the fields of p that describe its storage to the values in `with`.
 */
static void release_stored(fsdp_param *p, const stored *with)
{
    fsdp_param_release_tensors(p);
    set_stored(p, with);
}

/* Let p keep its old fsdp_tensor `local`, because a state dict may hold a pointer to it. Move the
 * memory of the new local tensor into the old one. */
static void keep_local(fsdp_param *p, stored *old)
{
    fsdp_tensor *made = p->local;
    fsdp_tensor_exchange(made, old->local);
    p->local = old->local;
    old->local = made;
}

/* Call this when all parameters have their new memory. Give the new memory to the old local
 * tensors, and free the old memory. */
static void finish_exchange(fsdp_param_group *g, stored *old, fsdp_param_memories *old_memories)
{
    for (size_t i = 0; i < g->n_params; i++) {
        fsdp_param *p = &g->params[i];
        keep_local(p, &old[i]);
        fsdp_param_show_tensors(p);
        const stored new = take_stored(p);
        set_stored(p, &old[i]);
        release_stored(p, &new);
    }
    fsdp_param_memories_destroy(old_memories);
}

static fsdp_status exchange_memory(fsdp_param_group *g, stored *old, const fsdp_dtype *dtypes)
{
    fsdp_param_memories old_memories = g->memories;
    g->memories = (fsdp_param_memories){0};
    for (size_t i = 0; i < g->n_params; i++) {
        old[i] = take_stored(&g->params[i]);
        g->params[i].dtype = dtypes[i];
    }
    fsdp_status status = create_tensors(g, old);
    if (status == FSDP_OK) {
        finish_exchange(g, old, &old_memories);
        return FSDP_OK;
    }
    for (size_t i = 0; i < g->n_params; i++)
        release_stored(&g->params[i], &old[i]);
    fsdp_param_memories_destroy(&g->memories);
    g->memories = old_memories;
    return status;
}

fsdp_status fsdp_param_group_store_as(fsdp_param_group *g, const fsdp_dtype *dtypes)
{
    FSDP_ASSERT(g->state == FSDP_STATE_SHARDED);
    FSDP_ASSERT(g->writers == 0);
    stored *old = fsdp_calloc(g->n_params, sizeof *old);
    if (!old)
        return FSDP_ERR_NOMEM;
    fsdp_param_group_drop_copies(g);
    fsdp_status status = exchange_memory(g, old, dtypes);
    fsdp_free(old);
    return status;
}

/* --- pending dtypes --- */

static fsdp_status store_pending(fsdp_param_group *g, fsdp_dtype *dtypes)
{
    bool changed = false;
    FSDP_TRY(fsdp_params_choose_dtypes(&g->context, g->params, g->n_params, dtypes));
    for (size_t i = 0; i < g->n_params; i++) {
        const fsdp_param *p = &g->params[i];
        changed |= dtypes[i] != p->dtype || fsdp_param_storage_for(p, dtypes[i]) != p->storage;
    }
    return changed ? fsdp_param_group_store_as(g, dtypes) : FSDP_OK;
}

static fsdp_status apply_pending(fsdp_param_group *g)
{
    if (g->state >= FSDP_STATE_UNSHARDED || g->writers)
        return fsdp_error(FSDP_ERR_STATE,
                          "unit '%s' is %s: its parameters can be frozen or unfrozen only "
                          "while it is neither gathered nor written",
                          g->context.name, g->writers ? "being written" : "unsharded");
    FSDP_TRY(fsdp_param_group_check_gather(g)); /* fails if the group is summoned */
    fsdp_param_group_reshard(g);                /* drops a prefetch */
    fsdp_dtype *dtypes = fsdp_calloc(g->n_params, sizeof *dtypes);
    if (!dtypes)
        return FSDP_ERR_NOMEM;
    fsdp_status status = store_pending(g, dtypes);
    fsdp_free(dtypes);
    return status;
}

fsdp_status fsdp_param_group_apply_pending_dtypes(fsdp_param_group *g)
{
    bool pending = false;
    for (size_t i = 0; i < g->n_params; i++)
        pending |= fsdp_param_is_pending(&g->params[i]);
    if (pending)
        FSDP_TRY(apply_pending(g));
    for (size_t i = 0; i < g->n_params; i++)
        g->params[i].requires_grad = fsdp_parameter_requires_grad(g->params[i].parameter);
    return FSDP_OK;
}

void fsdp_param_group_note_load(const fsdp_tensor *local, fsdp_dtype dtype)
{
    const fsdp_param_group *g = fsdp_param_group_of_local(local);
    for (size_t i = 0; g && i < g->n_params; i++) {
        fsdp_parameter *parameter = g->params[i].parameter;
        if (g->params[i].local != local || !fsdp_dtype_is_floating(dtype))
            continue;
        parameter->loaded = parameter->values_are_due = true;
        parameter->loaded_dtype = dtype;
    }
}

fsdp_status fsdp_param_group_apply_load(const fsdp_tensor *local)
{
    fsdp_param_group *g = fsdp_param_group_of_local(local);
    if (!g)
        return FSDP_OK;
    fsdp_status status = fsdp_param_group_apply_pending_dtypes(g);
    for (size_t i = 0; i < g->n_params; i++)
        g->params[i].parameter->values_are_due = false;
    return status;
}

/* --- moving from meta to a device --- */

static void drop_all_gradients(fsdp_param_group *g)
{
    fsdp_grad_buffer_drop(&g->grads);
    for (size_t i = 0; i < g->n_params; i++) {
        fsdp_grad_sink *sink = &g->params[i].parameter->sink;
        fsdp_tensor_release(sink->grad);
        sink->grad = NULL;
    }
}

/* Move the pools of the group's tree, if a forward has created them. */
static fsdp_status move_pools(fsdp_comm_context *comm, fsdp_device *device)
{
    if (!comm)
        return FSDP_OK;
    FSDP_TRY(fsdp_pool_move(&comm->gathered, device));
    FSDP_TRY(fsdp_pool_move(&comm->whole, device));
    FSDP_TRY(fsdp_pool_move(&comm->grads, device));
    return fsdp_pool_move(&comm->lanes, device);
}

static fsdp_status store_on(fsdp_param_group *g, fsdp_device *device)
{
    fsdp_dtype *dtypes = fsdp_calloc(g->n_params, sizeof *dtypes);
    if (!dtypes)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < g->n_params; i++)
        dtypes[i] = g->params[i].dtype;
    g->context.device = device;
    fsdp_status status = fsdp_param_group_store_as(g, dtypes);
    fsdp_free(dtypes);
    return status;
}

/* Create the group's memory on `device`. If this rank's rows were staged in a file before, the new
 * rows are staged in a file, too. */
static fsdp_status remake_on(fsdp_param_group *g, fsdp_device *device)
{
    fsdp_param_context *c = &g->context;
    fsdp_device *device_before = c->device;
    fsdp_offload_unit *offload_before = c->offload, *offload = NULL;
    if (offload_before)
        FSDP_TRY(fsdp_offload_unit_create(device, c->options.offload_policy.dir, &offload));
    c->offload = offload;
    fsdp_status status = store_on(g, device);
    if (status != FSDP_OK) {
        c->device = device_before;
        c->offload = offload_before;
        fsdp_offload_unit_release(offload);
        return status;
    }
    fsdp_offload_unit_release(offload_before);
    return FSDP_OK;
}

fsdp_status fsdp_param_group_to_empty(fsdp_param_group *g, fsdp_device *device)
{
    fsdp_param_context *c = &g->context;
    if (!fsdp_device_is_meta(c->device) || fsdp_device_is_meta(device))
        return FSDP_OK;
    if (g->state >= FSDP_STATE_UNSHARDED || g->writers)
        return fsdp_error(FSDP_ERR_STATE, "to_empty: unit '%s' is %s", c->name,
                          g->writers ? "being written" : "unsharded: reshard it first");
    fsdp_param_group_reshard(g); /* drops a prefetch */
    drop_all_gradients(g);
    FSDP_TRY(move_pools(c->comm, device));
    FSDP_TRY(remake_on(g, device));
    /* No gradient buffer is open, so g->grads.storage has no memory that would have to move. Only
     * its device changes. */
    if (g->grads.storage)
        g->grads.storage->device = device;
    if (c->offload)
        fsdp_offload_unit_set_name(c->offload, c->name);
    return FSDP_OK;
}
