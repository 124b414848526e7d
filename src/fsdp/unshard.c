/* Unshards and reshards a param group. Also implements the guards that allow writes of its
 * parameters only while the group is sharded. */
#include "src/base/assert.h"
#include "src/comm/cards/cards.h"
#include "src/fsdp/param_group.h"

/* --- guards --- */

static fsdp_status summoned_error(const fsdp_param_group *g)
{
    return fsdp_error(FSDP_ERR_STATE,
                      "unit '%s': its full parameters are summoned: call "
                      "fsdp_summon_full_params_end() first",
                      g->context.name);
}

/* Allow a write of this rank's rows only while the group is sharded. At other times, a write would
 * change memory that peers read, or make a copy stale. */
static fsdp_status begin_write(void *self)
{
    fsdp_param_group *g = self;
    if (g->summoned)
        return summoned_error(g);
    if (g->state != FSDP_STATE_SHARDED)
        return fsdp_error(FSDP_ERR_STATE,
                          "unit '%s' is unsharded: its parameters cannot be written before reshard",
                          g->context.name);
    g->writers++;
    return FSDP_OK;
}

static void end_write(void *self)
{
    fsdp_param_group *g = self;
    FSDP_ASSERT(g->writers > 0);
    g->writers--;
}

/* Refuse every write of an unsharded parameter. If the parameter is in a copy, the write would not
 * change the master weights. If it is in a shared buffer, the write would change values that peers
 * read. */
static fsdp_status refuse_write(void *self)
{
    const fsdp_param_group *g = self;
    return fsdp_error(FSDP_ERR_STATE,
                      "unit '%s': fsdp_parameter_data() of a unit is read only: write "
                      "fsdp_parameter_local()",
                      g->context.name);
}

/* Find the parameter whose memory contains `tensor`. */
static const fsdp_param *param_at(const fsdp_param_group *g, const fsdp_tensor *tensor)
{
    for (size_t i = 0; i < g->n_params; i++) {
        const fsdp_tensor *data = g->params[i].data;
        if (data && data->storage == tensor->storage && tensor->offset >= data->offset &&
            tensor->offset < data->offset + fsdp_tensor_numel(data))
            return &g->params[i];
    }
    return NULL;
}

/* Allow reads of the group's parameters only while the group is unsharded. This is checked on meta,
 * too, so a plan fails where its run would fail. */
static fsdp_status check_read(void *self, const fsdp_tensor *tensor)
{
    const fsdp_param_group *g = self;
    if (g->state == FSDP_STATE_UNSHARDED)
        return FSDP_OK;
    const fsdp_param *p = param_at(g, tensor);
    return fsdp_error(FSDP_ERR_STATE,
                      "'%s' of unit '%s' is resharded: call fsdp_unit_unshard() before reading it "
                      "outside of its module's forward and backward%s",
                      p ? p->name : "?", *g->context.name ? g->context.name : "root",
                      g->no_unshard_in_backward
                          ? "; in backward, too, after set_unshard_in_backward(false) "
                            "(--no-unshard-in-backward)"
                          : "");
}

fsdp_param_guards fsdp_param_group_guards(fsdp_param_group *g)
{
    g->read_guard =
        (fsdp_storage_guard){.check_read = check_read, .begin_write = refuse_write, .self = g};
    return (fsdp_param_guards){
        .write = {.begin_write = begin_write, .end_write = end_write, .self = g},
        .read = &g->read_guard};
}

fsdp_param_group *fsdp_param_group_of_local(const fsdp_tensor *local)
{
    for (const fsdp_storage_guard *guard = local->storage->guards; guard; guard = guard->next)
        if (guard->begin_write == begin_write)
            return guard->self;
    return NULL;
}

/* --- gathering --- */

/* Return the next memory of the group; NULL after the last one. Set *i to 0 before the first
 * call. */
static fsdp_param_memory *next_memory(const fsdp_param_group *g, size_t *i)
{
    while (*i < FSDP_N_MEMORIES && !g->memories.items[*i])
        ++*i;
    return *i < FSDP_N_MEMORIES ? g->memories.items[(*i)++] : NULL;
}

void fsdp_param_group_drop_copies(fsdp_param_group *g)
{
    fsdp_param_memory *m;
    for (size_t i = 0; (m = next_memory(g, &i));)
        if (m->ops->drop)
            m->ops->drop(m);
}

/* Begin a gather: write this rank's rows to where peers read them. */
static fsdp_status gather(fsdp_param_group *g)
{
    fsdp_param_memory *m;
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; status == FSDP_OK && (m = next_memory(g, &i));)
        if (m->ops->gather)
            status = m->ops->gather(m);
    if (status != FSDP_OK)
        fsdp_param_group_drop_copies(g);
    return status;
}

fsdp_status fsdp_param_group_prefetch(fsdp_param_group *g)
{
    fsdp_param_memory *m;
    fsdp_status status = FSDP_OK;
    const bool is_sharded = g->state == FSDP_STATE_SHARDED || g->state == FSDP_STATE_SECONDARY;
    if (!is_sharded || g->writers || g->summoned)
        return FSDP_OK;
    for (size_t i = 0; status == FSDP_OK && (m = next_memory(g, &i));)
        if (m->ops->prefetch)
            status = m->ops->prefetch(m);
    if (status == FSDP_OK)
        g->state = FSDP_STATE_GATHERING;
    else
        fsdp_param_group_drop_copies(g);
    return status;
}

/* Return FSDP_ERR_STATE if a parameter has memory that was never written. */
static fsdp_status check_values(const fsdp_param_group *g)
{
    size_t first = 0;
    while (first < g->n_params && g->params[first].local->has_values)
        first++;
    if (first == g->n_params || !g->context.device->kernels)
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_STATE,
        "the parameters of unit '%s' ('%s' and so on) have memory but no values: load "
        "a checkpoint, or draw them with fsdp_module_init()",
        g->context.name, g->params[first].name);
}

fsdp_status fsdp_param_group_check_gather(const fsdp_param_group *g)
{
    if (g->summoned)
        return summoned_error(g);
    if (g->writers)
        return fsdp_error(FSDP_ERR_STATE,
                          "unit '%s' is being written: call end_write before unshard",
                          g->context.name);
    return FSDP_OK;
}

/* --- unsharding --- */

/* Return the size of the group's all-gather, in bytes. */
static uint64_t gathered_bytes(const fsdp_param_group *g)
{
    const size_t size = fsdp_dtype_size(g->context.options.mp_policy.param_dtype);
    uint64_t bytes = 0;
    for (size_t i = 0; i < g->n_params; i++) {
        const fsdp_param *p = &g->params[i];
        bytes += p->storage->gathered_bytes ? p->storage->gathered_bytes(p)
                                            : (uint64_t)fsdp_param_numel(p) * size;
    }
    return bytes;
}

static void become_unsharded(fsdp_param_group *g)
{
    g->state = FSDP_STATE_UNSHARDED;
    fsdp_param_context_report(&g->context, FSDP_UNIT_UNSHARD, g->context.shard_group,
                              gathered_bytes(g));
}

/* Unshard a hidden group: show its memories again. */
static void show(fsdp_param_group *g)
{
    fsdp_param_memory *m;
    for (size_t i = 0; (m = next_memory(g, &i));)
        m->ops->show(m);
    become_unsharded(g);
}

fsdp_status fsdp_param_group_unshard(fsdp_param_group *g)
{
    fsdp_param_memory *m;
    if (g->state == FSDP_STATE_UNSHARDED)
        return FSDP_OK;
    if (g->state == FSDP_STATE_HIDDEN) {
        show(g);
        return FSDP_OK;
    }
    FSDP_TRY(fsdp_param_group_check_gather(g));
    FSDP_TRY(check_values(g));
    FSDP_TRY(fsdp_param_group_prefetch(g));
    fsdp_status status = gather(g);
    for (size_t i = 0; status == FSDP_OK && (m = next_memory(g, &i));)
        status = m->ops->unshard(m);
    if (status == FSDP_OK)
        become_unsharded(g);
    else
        fsdp_param_group_reshard(g);
    return status;
}

static void hide(fsdp_param_group *g)
{
    fsdp_param_memory *m;
    for (size_t i = 0; (m = next_memory(g, &i));)
        fsdp_storage_set_data(m->view, NULL);
    g->state = FSDP_STATE_HIDDEN;
    fsdp_param_context_report(&g->context, FSDP_UNIT_RESHARD, NULL, 0);
}

static fsdp_status keep_parts(fsdp_param_group *g)
{
    fsdp_param_memory *m;
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; status == FSDP_OK && (m = next_memory(g, &i));)
        status = m->ops->keep_part(m);
    if (status == FSDP_OK)
        g->state = FSDP_STATE_SECONDARY;
    else
        fsdp_param_group_reshard(g);
    if (status == FSDP_OK)
        fsdp_param_context_report(&g->context, FSDP_UNIT_RESHARD, NULL, 0);
    return status;
}

fsdp_status fsdp_param_group_reshard_to_smaller(fsdp_param_group *g)
{
    const fsdp_group *shards = g->context.shard_group;
    fsdp_param_memory *m;
    bool can_hide = true, can_keep_parts = true;
    FSDP_ASSERT(g->state == FSDP_STATE_UNSHARDED);
    for (size_t i = 0; (m = next_memory(g, &i));) {
        can_hide &= m->ops->show != NULL;
        can_keep_parts &= m->ops->keep_part != NULL;
    }
    if (fsdp_param_context_kept_ranks(&g->context) >
            fsdp_group_memory_ranks(shards, g->context.device) &&
        can_keep_parts)
        return keep_parts(g);
    if (can_hide)
        hide(g);
    else
        fsdp_param_group_reshard(g);
    return FSDP_OK;
}

/* --- resharding --- */

bool fsdp_param_group_reshards_after_forward(const fsdp_param_group *g, bool is_root)
{
    switch (g->context.options.reshard_after_forward) {
    case FSDP_RESHARD_TRUE:
    case FSDP_RESHARD_TO_SMALLER:
        return true;
    case FSDP_RESHARD_FALSE:
        return false;
    case FSDP_RESHARD_DEFAULT:
        break;
    }
    return !is_root; /* By default, the root stays unsharded: its backward begins directly after its
                        forward. */
}

void fsdp_param_group_reshard(fsdp_param_group *g)
{
    fsdp_param_memory *m;
    g->requested = false;
    if (g->state == FSDP_STATE_SHARDED)
        return;
    for (size_t i = 0; (m = next_memory(g, &i));)
        m->ops->reshard(m);
    if (fsdp_param_group_reshards_after_forward(g, g->is_root))
        fsdp_param_group_drop_copies(g);
    g->state = FSDP_STATE_SHARDED;
    fsdp_param_context_report(&g->context, FSDP_UNIT_RESHARD, NULL, 0);
}
