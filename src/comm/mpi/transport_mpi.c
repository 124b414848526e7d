/* The transport "mpi": ranks are processes on several hosts, which mpirun, mpiexec or srun has
 * started.
 *
 * Note [Several hosts]. On each host, the ranks share memory as in the transport "shm": each host
 * has a control block and its own memory for every shared buffer, with the boards and the phase
 * lanes of all ranks of the world. Each rank has a partner on every other host: the rank with the
 * same local rank. A rank writes its own lane and its own board on its host, and sends them to its
 * partners, which write them on their hosts. So a byte crosses the network once per host, and the
 * ranks of a host wait for the ranks of other hosts in the same way as for each other.
 *
 * When a rank ends a WRITE phase, it sends the bytes that it has declared with fsdp_phase_wrote():
 * each host gets the bytes that its ranks read. The partner receives them directly into the shared
 * buffer of its host. Then it stores the counter of the sender's lane. A rank that waits for this
 * counter may then read the bytes. No rank of the host reads these bytes earlier: the sender could
 * only begin its WRITE phase when all ranks had ended their READ phases. So the bytes need no copy,
 * and the sums over ranks are computed from the same values in the same order as on one host.
 *
 * A thread of each rank calls MPI (progress.h). The thread of the program only appends to its
 * queue. The failure of a rank is sent to the partners of all ranks of its host. Partners also pass
 * on heartbeats. A missing heartbeat shows that a rank is stopped or that a host cannot be
 * reached. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/comm/fd.h"
#include "src/comm/mpi/transport_mpi.h"
#include "src/comm/mpi/world.h"
#include "src/comm/mpi/progress.h"

/* A process joins at most one job at a time. Groups that are split off use the same thread. */
static fsdp_mpi_progress *progress;
static const fsdp_mpi_abi *abi;
static bool is_test; /* tests only: FSDP_TEST_HOSTS has divided one host into imagined hosts */
static fsdp_mpi_host_name *host_names; /* [n_hosts] while progress is not NULL */

static fsdp_status attach_buffer(fsdp_shared_buffer *buffer)
{
    return fsdp_mpi_progress_attach(progress, buffer);
}

static void detach_buffer(fsdp_shared_buffer *buffer)
{
    fsdp_mpi_progress_detach(progress, buffer);
}

static void flush_buffer(fsdp_shared_buffer *buffer)
{
    fsdp_mpi_progress_flush(progress, buffer);
}

static void announce(fsdp_shared_buffer *buffer)
{
    fsdp_mpi_progress_announce(progress, buffer);
}

static void end_phase(fsdp_shared_buffer *buffer)
{
    fsdp_mpi_progress_end_phase(progress, buffer);
}

/* After a failure, MPI may still be writing to the memory. Then it must stay mapped. */
static void release_memory(fsdp_comm_memory *memory)
{
    if (!fsdp_mpi_progress_leaks(progress))
        fsdp_shm_memory_release(memory);
}

static void close_group(fsdp_group *group)
{
    if (!group->members) {
        bool keeps = fsdp_mpi_progress_leaks(progress);
        if (fsdp_mpi_progress_stop(progress, group) && !is_test)
            keeps |= fsdp_mpi_world_left(abi, group->control, group->rank, group->ranks_per_host);
        progress = NULL;
        fsdp_free(host_names);
        host_names = NULL;
        fsdp_heartbeat_stop(group->heartbeat);
        if (!keeps)
            munmap(group->control, fsdp_comm_control_bytes(group->world_size));
    }
    fsdp_shm_destroy(group->impl);
}

static const char *host_name(int host)
{
    return host_names[host].text;
}

/* A rank that has failed may end before the others. MPI_Finalize() would wait for ranks that are
 * stopped or in an endless loop. So do not call MPI_Finalize(); the launcher then ends the job. */
static void close_on_one_host(fsdp_group *group)
{
    if (!group->members && fsdp_comm_control_aborted(group->control))
        fsdp_mpi_finalize_at_exit(false);
    fsdp_comm_shm.close(group);
}

static const fsdp_comm_ops several_hosts = {
    .name = "mpi",
    .memory_create = fsdp_shm_memory_create,
    .memory_attach = fsdp_shm_memory_attach,
    .memory_release = release_memory,
    .memory_discard = fsdp_shm_memory_discard,
    .connect = fsdp_shm_connect,
    .close = close_group,
    .buffer_attach = attach_buffer,
    .buffer_detach = detach_buffer,
    .phase_announced = announce,
    .phase_ended = end_phase,
    .buffer_flush = flush_buffer,
    .host_name = host_name,
};

/* ---- joining ---- */

static fsdp_status map_control(const fsdp_mpi_world *w, fsdp_shm *shm, fsdp_group *group)
{
    size_t bytes;
    void *mapped;
    FSDP_TRY(fsdp_memfd_check("mpi", shm->control_fd, &bytes));
    if (bytes != fsdp_comm_control_bytes(w->world_size))
        return fsdp_error(FSDP_ERR_COMM, "mpi: the control block has %zu bytes", bytes);
    FSDP_TRY(fsdp_memfd_map("mpi", shm->control_fd, bytes, &mapped));
    group->control = mapped;
    close(shm->control_fd);
    shm->control_fd = -1;
    return fsdp_comm_control_verify(group->control, bytes, w->world_size);
}

static const fsdp_comm_ops *ops_of(const fsdp_mpi_world *w)
{
    static fsdp_comm_ops one_host;
    if (w->n_hosts > 1)
        return &several_hosts;
    one_host = fsdp_comm_shm;
    one_host.close = close_on_one_host;
    return &one_host;
}

/* Do the steps of joining that may fail on only some of the ranks. */
static fsdp_status start_threads(const fsdp_mpi_world *w, fsdp_group *group)
{
    if (w->n_hosts > 1)
        FSDP_TRY(fsdp_mpi_progress_create(w, group->control, &progress));
    FSDP_TRY(fsdp_group_init(group, ops_of(w)));
    return fsdp_heartbeat_start(group->control, group->rank, group->stall_s, &group->heartbeat);
}

static fsdp_status fill_group(fsdp_mpi_world *w, fsdp_shm *shm, fsdp_group *group)
{
    FSDP_TRY(fsdp_mpi_world_connect(w, shm));
    FSDP_TRY(fsdp_mpi_world_agree(w, map_control(w, shm, group)));
    group->impl = shm;
    group->rank = w->rank;
    group->world_size = w->world_size;
    group->local_rank = w->local_rank;
    group->local_world_size = group->ranks_per_host = w->ranks_per_host;
    FSDP_TRY(fsdp_mpi_world_agree(w, start_threads(w, group)));
    if (w->n_hosts > 1) {
        fsdp_mpi_progress_run(progress);
        w->has_comm = false; /* from now on, the communicator belongs to the thread */
        host_names = w->host_names;
        w->host_names = NULL;
    }
    return FSDP_OK;
}

static void free_failed(fsdp_group *group, fsdp_shm *shm, int world_size)
{
    if (group)
        fsdp_heartbeat_stop(group->heartbeat);
    if (progress)
        fsdp_mpi_progress_discard(progress);
    progress = NULL;
    if (group && group->control)
        munmap(group->control, fsdp_comm_control_bytes(world_size));
    fsdp_shm_destroy(shm);
    if (group) {
        fsdp_free(group->scratch.ranges);
        fsdp_free(group);
    }
}

static fsdp_status create_group(fsdp_mpi_world *w, fsdp_group **out)
{
    fsdp_shm *shm = NULL;
    fsdp_group *group = fsdp_calloc(1, sizeof *group);
    fsdp_status status = group ? fsdp_shm_create(w->world_size, &shm) : fsdp_error_nomem();
    status = fsdp_mpi_world_agree(w, status);
    if (status == FSDP_OK)
        status = fill_group(w, shm, group);
    if (status == FSDP_OK)
        *out = group;
    else
        free_failed(group, shm, w->world_size);
    return status;
}

/* Show the rest of the program which rank this is, as `fsdp launch` and torchrun do. */
static fsdp_status set_environment(const fsdp_mpi_world *w)
{
    const struct {
        const char *name;
        int value;
    } variables[] = {{"RANK", w->rank},
                     {"WORLD_SIZE", w->world_size},
                     {"LOCAL_RANK", w->local_rank},
                     {"LOCAL_WORLD_SIZE", w->ranks_per_host},
                     {"GROUP_RANK", w->host}};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", variables[i].value);
        if (setenv(variables[i].name, text, 1) != 0)
            return fsdp_error_nomem();
    }
    return FSDP_OK;
}

fsdp_status fsdp_mpi_open(const fsdp_mpi_job *job, fsdp_group **group)
{
    fsdp_mpi_world w;
    if (progress)
        return fsdp_error(FSDP_ERR_STATE,
                          "init_process_group: this process has joined a job of MPI already");
    FSDP_TRY(fsdp_mpi_world_join(job, &w));
    abi = w.abi;
    is_test = w.is_test;
    fsdp_status status = set_environment(&w); /* called before any other thread runs, because
                                                 another thread could read the environment */
    if (w.world_size > 1)
        status = fsdp_mpi_world_agree(&w, status);
    if (status == FSDP_OK && w.world_size == 1)
        status = fsdp_comm_local.open(NULL, group);
    else if (status == FSDP_OK)
        status = create_group(&w, group);
    if (status != FSDP_OK)
        fsdp_mpi_finalize_at_exit(false); /* other ranks may not come to MPI_Finalize() */
    fsdp_mpi_world_free(&w);
    return status;
}
