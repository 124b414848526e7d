/* The public face of process groups: reads the environment, picks the transport, and holds what all
 * of them have in common. */
#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/comm/group_testing.h"
#include "src/comm/phase.h"
#include "src/comm/rendezvous.h"

static const double default_timeout_s = 600;
static const double default_stall_s = 4; /* with the polls, the error comes within 5 s */
static const int64_t spin_limit_ns = 25000;

/* ---- life of a group ---- */

/* A number of seconds in the environment, at least `least`; `*seconds` stays if it is not set. */
static fsdp_status read_seconds(const char *name, double least, double *seconds)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return FSDP_OK;
    double read = strtod(text, &end);
    if (*end || !(read >= least) || read > 1e9)
        return fsdp_error(FSDP_ERR_INVALID,
                          "environment: %s is '%s', not a number of seconds from %g to 1e9", name,
                          text, least);
    *seconds = read;
    return FSDP_OK;
}

static fsdp_status read_limits(fsdp_group *group)
{
    double timeout_s = default_timeout_s;
    group->stall_s = default_stall_s;
    FSDP_TRY(read_seconds("FSDP_TIMEOUT_S", 1e-3, &timeout_s));
    FSDP_TRY(read_seconds("FSDP_STALL_S", 0, &group->stall_s));
    group->timeout_ns = (int64_t)(timeout_s * 1e9);
    return FSDP_OK;
}

fsdp_status fsdp_group_init(fsdp_group *group, const fsdp_comm_ops *ops)
{
    FSDP_TRY(read_limits(group));
    group->ops = ops;
    group->refs = 1;
    group->next_buffer = 1;
    if (!group->control)
        return FSDP_OK;
    fsdp_shared_buffer *scratch = &group->scratch;
    unsigned char *base =
        (unsigned char *)group->control + fsdp_comm_control_scratch_offset(group->world_size);
    scratch->lanes = (fsdp_phase_lane *)(void *)base;
    scratch->data = base + fsdp_phase_lanes_bytes(group->world_size);
    scratch->bytes = (size_t)group->world_size * FSDP_SCRATCH_SLOT_BYTES;
    fsdp_shared_buffer_link(group, scratch);
    fsdp_group_set_threads(group, 1);
    atomic_store(&group->control->board[group->rank].joined, 1);
    return FSDP_OK;
}

void fsdp_group_release(fsdp_group *group)
{
    if (--group->refs > 0)
        return;
    group->ops->close(group);
    fsdp_shared_buffer_destroy(group->home);
    fsdp_group_release_hooks(group);
    fsdp_free(group->members);
    fsdp_free(group);
}

void fsdp_destroy_process_group(fsdp_group *group)
{
    if (!group)
        return;
    if (group->control && !group->members)
        atomic_store(&fsdp_group_board(group)->left, 1);
    fsdp_group_release(group);
}

int fsdp_group_rank(const fsdp_group *group)
{
    return group ? group->rank : 0;
}

int fsdp_group_world_size(const fsdp_group *group)
{
    return group ? group->world_size : 1;
}

int fsdp_group_local_rank(const fsdp_group *group)
{
    return group->local_rank;
}

int fsdp_group_local_world_size(const fsdp_group *group)
{
    return group->local_world_size;
}

const char *fsdp_group_backend(const fsdp_group *group)
{
    return group->ops->name;
}

const fsdp_comm_counters *fsdp_group_counters(const fsdp_group *group)
{
    return &group->counters;
}

fsdp_comm_counters fsdp_group_get_counters(const fsdp_group *group)
{
    return group->counters;
}

int64_t fsdp_comm_counters_wait_ns(const fsdp_comm_counters *counters)
{
    int64_t sum = 0;
    for (int kind = 0; kind < FSDP_KIND_COUNT; kind++)
        sum += counters->wait_ns[kind];
    return sum;
}

void fsdp_group_count(fsdp_group *group, fsdp_phase_kind kind, uint64_t logical_bytes)
{
    group->counters.calls[kind]++;
    group->counters.logical_bytes[kind] += logical_bytes;
}

void fsdp_group_set_threads(fsdp_group *group, int threads)
{
    if (group->control)
        group->spin_ns = (int64_t)group->control->world_size * threads <= group->control->cores
                             ? spin_limit_ns
                             : 0;
}

/* ---- joining ---- */

/* In order of preference: the first that fits. */
static const fsdp_comm_ops *const transports[] = {&fsdp_comm_local, &fsdp_comm_shm,
                                                  &fsdp_comm_threads};

/* An integer of the environment in [low, high]; `*value` stays if it is not set. */
static fsdp_status read_env_int(const char *name, int low, int high, bool *found, int *value)
{
    const char *text = getenv(name);
    *found = text && *text;
    if (!*found)
        return FSDP_OK;
    char *end;
    errno = 0;
    long read = strtol(text, &end, 10);
    if (*end || errno || read < low || read > high)
        return fsdp_error(FSDP_ERR_INVALID, "environment: %s is '%s', not an integer from %d to %d",
                          name, text, low, high);
    *value = (int)read;
    return FSDP_OK;
}

static fsdp_status read_world(fsdp_comm_world *world)
{
    bool found;
    *world = (fsdp_comm_world){.world_size = 1};
    FSDP_TRY(read_env_int("WORLD_SIZE", 1, FSDP_COMM_MAX_RANKS, &found, &world->world_size));
    world->rendezvous = getenv(FSDP_RENDEZVOUS_ENV);
    if (!found && world->rendezvous)
        return fsdp_error(FSDP_ERR_INVALID,
                          "environment: " FSDP_RENDEZVOUS_ENV " is set, but WORLD_SIZE is not");
    int last = world->world_size - 1;
    FSDP_TRY(read_env_int("RANK", 0, last, &found, &world->rank));
    if (!found && last > 0)
        return fsdp_error(FSDP_ERR_INVALID, "environment: WORLD_SIZE is %d, but RANK is not set",
                          world->world_size);
    world->local_rank = world->rank;
    world->local_world_size = world->world_size;
    FSDP_TRY(read_env_int("LOCAL_WORLD_SIZE", 1, last + 1, &found, &world->local_world_size));
    FSDP_TRY(
        read_env_int("LOCAL_RANK", 0, world->local_world_size - 1, &found, &world->local_rank));
    return FSDP_OK;
}

static const fsdp_comm_ops *find_transport(const char *name)
{
    for (size_t i = 0; i < FSDP_LENGTH(transports); i++)
        if (strcmp(transports[i]->name, name) == 0)
            return transports[i];
    return NULL;
}

fsdp_status fsdp_init_process_group(const char *backend, fsdp_group **group)
{
    fsdp_comm_world world;
    if (!group)
        return fsdp_error(FSDP_ERR_INVALID, "init_process_group: group is NULL");
    const fsdp_comm_ops *wanted = backend ? find_transport(backend) : NULL;
    if (backend && !wanted)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "init_process_group: backend '%s' is not in this build, which has 'shm'",
                          backend);
    if (wanted && !wanted->open)
        return fsdp_error(FSDP_ERR_INVALID,
                          "init_process_group: ranks as %s are run by fsdp_run_ranks", backend);
    FSDP_TRY(read_world(&world));
    if (world.world_size == 1)
        return fsdp_comm_local.open(&world, group);
    if (wanted == &fsdp_comm_local)
        return fsdp_error(FSDP_ERR_INVALID,
                          "init_process_group: backend 'local' is a world of one, WORLD_SIZE is %d",
                          world.world_size);
    FSDP_TRY(fsdp_comm_shm.open(&world, group));
    fsdp_status status = fsdp_barrier(*group);
    if (status != FSDP_OK) {
        fsdp_error_context(status, "init_process_group: waiting for all %d ranks",
                           world.world_size);
        fsdp_destroy_process_group(*group);
        *group = NULL;
    }
    return status;
}

/* ---- failure ---- */

void fsdp_group_at(fsdp_group *group, uint32_t step, const char *unit, const char *call)
{
    if (!group->control)
        return;
    fsdp_comm_location at = {.step = step};
    fsdp_comm_copy_text(at.unit, sizeof at.unit, unit);
    fsdp_comm_copy_text(at.call, sizeof at.call, call);
    fsdp_comm_place_set(&fsdp_group_board(group)->at, &at);
}

fsdp_comm_location fsdp_group_location(const fsdp_group *group)
{
    if (!group->control)
        return (fsdp_comm_location){0};
    return fsdp_comm_place_get(&fsdp_group_board(group)->at);
}

bool fsdp_group_post(fsdp_group *group, fsdp_status status, fsdp_comm_failure_kind kind)
{
    if (!group->control)
        return true;
    /* What all agreed upon is told of the rank that it happened on, whoever comes first. */
    const int own = fsdp_group_world_rank(group, group->rank);
    int rank = kind == FSDP_FAILURE_OF_RANK && group->culprit ? group->culprit - 1 : own;
    fsdp_comm_failure failure = {.rank = rank,
                                 .status = (int32_t)status,
                                 .kind = kind,
                                 .at = fsdp_comm_place_get(&group->control->board[rank].at)};
    char where[160];
    fsdp_comm_location_describe(&failure.at, where, sizeof where);
    if (kind == FSDP_FAILURE_OF_ALL && where[0])
        (void)fsdp_error(status, "%s (rank %d%s)", fsdp_last_error(), own, where);
    const char *message = fsdp_last_error();
    snprintf(where, sizeof where, "rank %d: ", rank);
    if (rank != own && strncmp(message, where, strlen(where)) == 0)
        message += strlen(where); /* fsdp_agree()'s */
    fsdp_comm_copy_text(failure.message, sizeof failure.message, message);
    return fsdp_comm_control_abort(group->control, own, &failure);
}

fsdp_status fsdp_group_fail(fsdp_group *group, fsdp_status status)
{
    return fsdp_group_post(group, status, FSDP_FAILURE_OF_ALL)
               ? status
               : fsdp_comm_control_error(group->control);
}

fsdp_status fsdp_group_accuse(fsdp_group *group, int accused, double silent_s)
{
    const int own = fsdp_group_world_rank(group, group->rank);
    fsdp_comm_failure failure = {.rank = accused,
                                 .status = FSDP_ERR_COMM,
                                 .kind = FSDP_FAILURE_STOPPED,
                                 .at = fsdp_comm_place_get(&group->control->board[accused].at)};
    snprintf(failure.message, sizeof failure.message,
             "has not moved for %.1f s (stopped by a signal or a debugger?), and rank %d waits "
             "for it",
             silent_s, own);
    fsdp_comm_control_abort(group->control, own, &failure);
    return fsdp_comm_control_error(group->control);
}

void fsdp_group_abort(fsdp_group *group, fsdp_status status)
{
    if (group && status != FSDP_OK)
        fsdp_group_post(group, status, FSDP_FAILURE_OF_RANK);
}

fsdp_status fsdp_group_check(const fsdp_group *group)
{
    if (!group || !group->control || !fsdp_comm_control_aborted(group->control))
        return FSDP_OK;
    return fsdp_comm_control_error(group->control);
}

static bool is_gone(const fsdp_group *group, int rank)
{
    const int peer = fsdp_group_world_rank(group, rank);
    return atomic_load(&group->control->board[peer].left) ||
           fsdp_heartbeat_silent_s(group->heartbeat, peer) > 0;
}

bool fsdp_group_lacks_peer(const fsdp_group *group)
{
    fsdp_comm_failure first;
    if (!group || !group->control)
        return false;
    if (fsdp_comm_control_failure(group->control, &first) &&
        (first.kind == FSDP_FAILURE_DIED || first.kind == FSDP_FAILURE_STOPPED))
        return true;
    for (int r = 0; r < group->world_size; r++)
        if (r != group->rank && is_gone(group, r))
            return true;
    return false;
}
