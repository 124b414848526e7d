/* Measures the costs of a process group whose ranks are processes on this host: of phases,
 * barriers, small reductions, and the creation of buffers.
 *
 *     comm [ranks] */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/comm/comm.h"
#include "src/comm/rendezvous.h"

static void report(const fsdp_group *group, const char *what, int count, double seconds)
{
    if (fsdp_group_rank(group) == 0)
        printf("%-48s %9.2f us\n", what, seconds / count * 1e6);
}

static fsdp_status bench_phases(fsdp_group *group, int count)
{
    fsdp_shared_buffer *buffer = NULL;
    fsdp_phase_info info = {.kind = FSDP_KIND_STATE_DICT};
    FSDP_TRY(fsdp_shared_buffer_create(group, 4096, &buffer));
    double start = fsdp_clock_s();
    for (int i = 0; i < count; i++) {
        FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_WRITE, &info));
        fsdp_phase_end(buffer);
        FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_READ, &info));
        fsdp_phase_end(buffer);
    }
    report(group, "WRITE + READ, ranks in lock step", count, fsdp_clock_s() - start);
    double without_wait = 0;
    for (int i = 0; i < count; i++) {
        if (i % 20 == 0) /* ranks stay so close that READ never waits (FSDP_PHASE_RING) */
            FSDP_TRY(fsdp_barrier(group));
        start = fsdp_clock_s();
        FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_READ, &info));
        fsdp_phase_end(buffer);
        without_wait += fsdp_clock_s() - start;
    }
    report(group, "READ of what was written long ago", count, without_wait);
    fsdp_shared_buffer_destroy(buffer);
    return FSDP_OK;
}

static fsdp_status bench_collectives(fsdp_group *group, int count)
{
    double start = fsdp_clock_s();
    for (int i = 0; i < count; i++)
        FSDP_TRY(fsdp_barrier(group));
    report(group, "barrier", count, fsdp_clock_s() - start);
    start = fsdp_clock_s();
    double pair[2] = {1, 2};
    for (int i = 0; i < count; i++)
        FSDP_TRY(fsdp_all_reduce(group, pair, 2, FSDP_DTYPE_F64, FSDP_REDUCE_MAX));
    report(group, "all_reduce of 2 float64", count, fsdp_clock_s() - start);
    return FSDP_OK;
}

static fsdp_status bench_buffers(fsdp_group *group, size_t bytes, int count)
{
    char what[64];
    double start = fsdp_clock_s();
    for (int i = 0; i < count; i++) {
        fsdp_shared_buffer *buffer = NULL;
        FSDP_TRY(fsdp_shared_buffer_create(group, bytes, &buffer));
        fsdp_shared_buffer_destroy(buffer);
    }
    snprintf(what, sizeof what, "make and drop a buffer of %zu KiB", bytes >> 10);
    report(group, what, count, fsdp_clock_s() - start);
    return FSDP_OK;
}

static fsdp_status bench(void)
{
    fsdp_group *group = NULL;
    FSDP_TRY(fsdp_init_process_group("shm", &group));
    fsdp_status status = bench_phases(group, 20000);
    if (status == FSDP_OK)
        status = bench_collectives(group, 20000);
    if (status == FSDP_OK)
        status = bench_buffers(group, 4 << 10, 500);
    if (status == FSDP_OK)
        status = bench_buffers(group, 64 << 20, 4);
    fsdp_group_abort(group, status);
    fsdp_destroy_process_group(group);
    return status;
}

static void set_env_int(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : 2, failed = 0;
    char value[1024];
    fsdp_rendezvous *rendezvous = NULL;
    if (ranks < 2 || ranks > 64 || fsdp_rendezvous_create(ranks, &rendezvous) != FSDP_OK) {
        fprintf(stderr, "usage: comm [2 to 64 ranks]: %s\n", fsdp_last_error());
        return 2;
    }
    for (int rank = 0; rank < ranks; rank++) {
        fsdp_rendezvous_child_env(rendezvous, rank, value, sizeof value);
        if (fork() != 0)
            continue;
        fsdp_rendezvous_child(rendezvous, rank);
        setenv(FSDP_RENDEZVOUS_ENV, value, 1);
        set_env_int("WORLD_SIZE", ranks);
        set_env_int("RANK", rank);
        if (bench() == FSDP_OK)
            return 0;
        fprintf(stderr, "rank %d: %s\n", rank, fsdp_last_error());
        return 1;
    }
    for (int rank = 0, how; rank < ranks; rank++)
        failed |= wait(&how) < 0 || how != 0;
    fsdp_rendezvous_destroy(rendezvous);
    return failed;
}
