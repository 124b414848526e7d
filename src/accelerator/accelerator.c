/* Creates and destroys accelerators, and implements the calls about processes. */
#include "src/accelerator/accelerator.h"

#include <stdarg.h>

#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"

enum {
    DEFAULT_SEED = 42,      /* the seed that Accelerate's examples set */
    DESTROY_TRACKERS_S = 10 /* seconds that destroy() waits for the tracker program to end */
};

/* ---- creating ---- */

static fsdp_status open_device(fsdp_accelerator *a, const fsdp_accelerator_options *o)
{
    const fsdp_device_options options = {.name = a->settings.cpu ? "cpu" : NULL};
    a->device = o->device;
    if (a->device)
        return FSDP_OK;
    FSDP_TRY(fsdp_rank_device_create(a->group, &options, &a->device));
    a->owns_device = true;
    return FSDP_OK;
}

/* Create a mesh (replicate, shard) if the environment variables give its sizes. A hybrid strategy
 * without sizes has one replica, as in fsdp_fully_shard(), and needs no mesh. */
static fsdp_status open_mesh(fsdp_accelerator *a)
{
    static const char *const names[] = {"replicate", "shard"};
    fsdp_accelerator_settings *s = &a->settings;
    const int world_size = fsdp_group_world_size(a->group);
    const bool says_replicas = s->replicas > 1 || (s->is_hybrid && s->shard_size > 0);
    /* 1 is Accelerate's default for the shard size, so the user may not have chosen it. */
    if (s->code_shards || (!says_replicas && s->shard_size <= 1))
        return FSDP_OK;
    const int shards = s->shard_size > 0 ? s->shard_size : world_size / s->replicas;
    const int replicas = s->replicas > 0 ? s->replicas : says_replicas ? world_size / shards : 1;
    fsdp_status status = FSDP_OK;
    if ((int64_t)shards * replicas != world_size)
        status = fsdp_error(
            FSDP_ERR_INVALID,
            "PARALLELISM_CONFIG_DP_REPLICATE_SIZE %d and PARALLELISM_CONFIG_DP_SHARD_SIZE %d do "
            "not give the %d ranks of the job%s",
            replicas, shards, world_size,
            says_replicas ? ""
                          : "; without replicas, the shard size is the number of ranks, or is not "
                            "set");
    FSDP_TRY(fsdp_agree(a->group, status));
    if (!says_replicas)
        return FSDP_OK;
    FSDP_TRY(fsdp_device_mesh_create(a->group, 2, (int[]){replicas, shards}, names, &a->mesh));
    s->fully_shard.mesh = a->mesh;
    return FSDP_OK;
}

static fsdp_status open_scaler(fsdp_accelerator *a, const fsdp_accelerator_options *o)
{
    fsdp_grad_scaler_options scaler =
        o->grad_scaler ? *o->grad_scaler : (fsdp_grad_scaler_options){0};
    scaler.disabled = a->settings.precision != 1;
    scaler.group = a->group;
    return fsdp_grad_scaler_create(&scaler, &a->scaler);
}

/* Join the process group, and read the settings. If reading fails on a rank, all ranks return an
 * error. */
static fsdp_status open_group(fsdp_accelerator *a, const fsdp_accelerator_options *o)
{
    a->group = o->group;
    if (!a->group) {
        FSDP_TRY(fsdp_init_process_group(NULL, &a->group));
        a->owns_group = true;
    }
    fsdp_status status = fsdp_accelerator_settings_read(o, &a->settings);
    if (status == FSDP_OK)
        status = fsdp_accelerator_check_trackers(o->log_with, o->tracker_command);
    return fsdp_agree(a->group, status);
}

static fsdp_status open_parts(fsdp_accelerator *a, const fsdp_accelerator_options *o)
{
    FSDP_TRY(open_group(a, o));
    FSDP_TRY(open_device(a, o));
    FSDP_TRY(open_mesh(a));
    fsdp_status status = fsdp_tape_create(&a->tape);
    if (status == FSDP_OK)
        status = open_scaler(a, o);
    if (status == FSDP_OK && a->settings.activation_offload)
        status = fsdp_activation_offload_create(NULL, &a->offload);
    return fsdp_agree(a->group, status);
}

fsdp_status fsdp_accelerator_create(const fsdp_accelerator_options *options, fsdp_accelerator **out)
{
    static const fsdp_accelerator_options defaults = {0};
    const fsdp_accelerator_options *o = options ? options : &defaults;
    fsdp_accelerator *a = fsdp_calloc(1, sizeof *a);
    if (!a) {
        /* Peers may be waiting for this rank in a collective. */
        if (o->group)
            fsdp_group_abort(o->group, FSDP_ERR_NOMEM);
        return FSDP_ERR_NOMEM;
    }
    a->out = o->out ? o->out : stdout;
    a->seed = DEFAULT_SEED;
    a->sync_gradients = true;
    a->n_micro_steps = 1;
    a->iteration = o->iteration;
    const fsdp_status status = open_parts(a, o);
    if (status == FSDP_OK)
        *out = a;
    else
        fsdp_accelerator_destroy(a);
    return status;
}

/* ---- forgetting ---- */

void fsdp_accelerator_free_memory(fsdp_accelerator *a)
{
    if (a->tape)
        fsdp_tape_reset(a->tape);
    for (size_t i = 0; i < a->n_schedulers; i++)
        fsdp_free(a->schedulers[i]);
    /* If the update of the scale fails, the scale stays as it is. */
    if (a->update_pending)
        a->update_pending = fsdp_grad_scaler_update(a->scaler) != FSDP_OK;
    fsdp_accelerator_forget_unscaled(a);
    a->n_models = a->n_optimizers = a->n_schedulers = a->n_loaders = a->n_outer = 0;
    a->active = NULL;
    a->accumulating = false;
    a->sync_gradients = true;
    a->micro_step = a->next_micro_step = 0;
    a->n_micro_steps = 1;
}

static void free_objects(fsdp_accelerator *a)
{
    for (size_t i = 0; i < a->n_objects; i++)
        fsdp_free(a->objects[i].name);
    fsdp_free(a->objects);
}

void fsdp_accelerator_destroy(fsdp_accelerator *a)
{
    if (!a)
        return;
    fsdp_accelerator_close_trackers(a, DESTROY_TRACKERS_S);
    fsdp_accelerator_free_memory(a);
    fsdp_tape_destroy(a->tape);
    fsdp_activation_offload_destroy(a->offload);
    fsdp_grad_scaler_destroy(a->scaler);
    fsdp_free(a->models);
    fsdp_free(a->optimizers);
    fsdp_free(a->schedulers);
    fsdp_free(a->loaders);
    fsdp_free(a->outer);
    free_objects(a);
    fsdp_free(a->hooks);
    fsdp_device_mesh_destroy(a->mesh);
    if (a->owns_device)
        fsdp_device_destroy(a->device);
    if (a->owns_group)
        fsdp_destroy_process_group(a->group);
    fsdp_accelerator_settings_fini(&a->settings);
    fsdp_free(a);
}

/* ---- processes ---- */

int fsdp_accelerator_num_processes(const fsdp_accelerator *a)
{
    return fsdp_group_world_size(a->group);
}

int fsdp_accelerator_process_index(const fsdp_accelerator *a)
{
    return fsdp_group_rank(a->group);
}

int fsdp_accelerator_local_process_index(const fsdp_accelerator *a)
{
    return fsdp_group_local_rank(a->group);
}

bool fsdp_accelerator_is_main_process(const fsdp_accelerator *a)
{
    return fsdp_group_rank(a->group) == 0;
}

bool fsdp_accelerator_is_local_main_process(const fsdp_accelerator *a)
{
    return fsdp_group_local_rank(a->group) == 0;
}

bool fsdp_accelerator_is_last_process(const fsdp_accelerator *a)
{
    return fsdp_group_rank(a->group) + 1 == fsdp_group_world_size(a->group);
}

fsdp_group *fsdp_accelerator_group(const fsdp_accelerator *a)
{
    return a->group;
}

fsdp_device *fsdp_accelerator_device(const fsdp_accelerator *a)
{
    return a->device;
}

const char *fsdp_accelerator_mixed_precision(const fsdp_accelerator *a)
{
    return fsdp_accelerator_precisions[a->settings.precision];
}

int fsdp_accelerator_gradient_accumulation_steps(const fsdp_accelerator *a)
{
    return a->settings.gradient_accumulation_steps;
}

fsdp_grad_scaler *fsdp_accelerator_scaler(const fsdp_accelerator *a)
{
    return a->scaler;
}

void fsdp_accelerator_print(const fsdp_accelerator *a, const char *format, ...)
{
    va_list args;
    if (!fsdp_accelerator_is_main_process(a))
        return;
    va_start(args, format);
    vfprintf(a->out, format, args);
    va_end(args);
}

fsdp_status fsdp_accelerator_wait_for_everyone(fsdp_accelerator *a)
{
    return fsdp_barrier(a->group);
}

fsdp_status fsdp_accelerator_main_process_first_begin(fsdp_accelerator *a)
{
    return fsdp_accelerator_is_main_process(a) ? FSDP_OK : fsdp_barrier(a->group);
}

fsdp_status fsdp_accelerator_main_process_first_end(fsdp_accelerator *a)
{
    return fsdp_accelerator_is_main_process(a) ? fsdp_barrier(a->group) : FSDP_OK;
}

void fsdp_accelerator_split_between_processes(const fsdp_accelerator *a, int64_t length,
                                              int64_t *begin, int64_t *end)
{
    const int64_t world_size = fsdp_group_world_size(a->group), rank = fsdp_group_rank(a->group);
    const int64_t each = length / world_size, extra = length % world_size;
    *begin = rank * each + (rank < extra ? rank : extra);
    *end = *begin + each + (rank < extra);
}

void fsdp_accelerator_set_seed(fsdp_accelerator *a, uint64_t seed)
{
    a->seed = seed;
}

void fsdp_accelerator_set_trigger(fsdp_accelerator *a)
{
    a->triggered = true;
}

fsdp_status fsdp_accelerator_check_trigger(fsdp_accelerator *a, bool *triggered)
{
    int32_t any = a->triggered;
    FSDP_TRY(fsdp_all_reduce(a->group, &any, 1, FSDP_DTYPE_I32, FSDP_REDUCE_MAX));
    a->triggered = false;
    *triggered = any != 0;
    return FSDP_OK;
}
