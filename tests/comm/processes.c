/* A small launcher for tests. */
#include "tests/comm/processes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"

static void set_env_int(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static fsdp_status join_and_run(fsdp_rank_fn *body, void *arg)
{
    fsdp_group *group = NULL;
    FSDP_TRY(fsdp_init_process_group("shm", &group));
    fsdp_status status = body(group, arg);
    fsdp_group_abort(group, status);
    fsdp_destroy_process_group(group);
    return status;
}

static void child(fsdp_rendezvous *rendezvous, int rank, int world_size, fsdp_rank_fn *body,
                  void *arg, process_result *result)
{
    char value[MAX_PROCESSES * 16];
    fsdp_rendezvous_child_env(rendezvous, rank, value, sizeof value);
    fsdp_rendezvous_child(rendezvous, rank);
    setenv(FSDP_RENDEZVOUS_ENV, value, 1);
    set_env_int("RANK", rank);
    set_env_int("WORLD_SIZE", world_size);
    set_env_int("LOCAL_RANK", rank);
    set_env_int("LOCAL_WORLD_SIZE", world_size);
    result->status = join_and_run(body, arg);
    snprintf(result->message, sizeof result->message, "%s", fsdp_last_error());
    _exit(result->status != FSDP_OK);
}

static void supervise(fsdp_rendezvous *rendezvous, const pid_t *pids, int world_size,
                      process_result *results)
{
    double start = fsdp_clock_s();
    for (int left = world_size; left > 0; left--) {
        int how, rank = 0;
        pid_t pid = waitpid(-1, &how, 0);
        while (rank < world_size && pids[rank] != pid)
            rank++;
        if (rank == world_size)
            continue;
        results[rank].ended_s = fsdp_clock_s() - start;
        char text[64];
        if (!WIFSIGNALED(how)) {
            if (fsdp_rendezvous_rank_state(rendezvous, rank) == FSDP_RANK_JOINED)
                fsdp_rendezvous_abort(rendezvous, rank, "ended without leaving its process group");
            continue;
        }
        results[rank].signal = WTERMSIG(how);
        snprintf(text, sizeof text, "signal %d, %s", WTERMSIG(how), strsignal(WTERMSIG(how)));
        fsdp_rendezvous_abort(rendezvous, rank, text);
    }
}

fsdp_status run_processes(int world_size, fsdp_rank_fn *body, void *arg, process_result *results,
                          fsdp_rendezvous_report *report)
{
    fsdp_rendezvous *rendezvous = NULL;
    pid_t pids[MAX_PROCESSES];
    size_t bytes = MAX_PROCESSES * sizeof *results;
    process_result *shared =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return fsdp_error(FSDP_ERR_NOMEM, "mmap: %s", strerror(errno));
    fsdp_status status = fsdp_rendezvous_create(world_size, &rendezvous);
    if (status != FSDP_OK)
        goto out;
    fflush(NULL);
    for (int rank = 0; rank < world_size; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0)
            child(rendezvous, rank, world_size, body, arg, &shared[rank]);
        if (pids[rank] < 0) {
            status = fsdp_error(FSDP_ERR_IO, "fork: %s", strerror(errno));
            fsdp_rendezvous_abort(rendezvous, rank, "never started");
            world_size = rank;
        }
    }
    fsdp_rendezvous_forked(rendezvous);
    supervise(rendezvous, pids, world_size, shared);
    memcpy(results, shared, (size_t)world_size * sizeof *results);
    if (report && !fsdp_rendezvous_failure(rendezvous, report))
        *report = (fsdp_rendezvous_report){0};
out:
    fsdp_rendezvous_destroy(rendezvous);
    munmap(shared, bytes);
    return status;
}
