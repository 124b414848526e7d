/* The transport "mpi" with Open MPI and MPICH. FSDP_TEST_HOSTS divides the ranks of this machine
 * into imagined hosts, which share no memory. A test starts mpirun or mpiexec, which start this
 * program again with the name of one test, the body of a rank. Skipped where the launcher is not
 * installed. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/program.h"
#include "src/comm/comm.h"
#include "src/comm/group.h"
#include "tests/comm/conformance.h"
#include "tests/comm/stress.h"
#include "tests/test.h"

static const char body_env[] = "FSDP_TEST_MPI_BODY";

/* ---- bodies of ranks ---- */

static fsdp_status run_stress(fsdp_group *group, void *arg)
{
    (void)arg;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        stress_options o = {.seed = seed, .phases = 150, .max_delay_us = seed == 2 ? 300 : 0};
        FSDP_TRY(comm_stress(group, &o));
    }
    return FSDP_OK;
}

static fsdp_status run_random(fsdp_group *group, void *arg)
{
    (void)arg;
    stress_options o = {.seed = 5, .phases = 40};
    return comm_random_collectives(group, &o);
}

/* Parts of more than two pieces, and a part that ends within a piece. */
static fsdp_status exchange_large_parts(fsdp_group *group, void *arg)
{
    (void)arg;
    const size_t words = (9 << 20) / sizeof(uint32_t) + 3;
    const int rank = fsdp_group_rank(group), ranks = fsdp_group_world_size(group);
    fsdp_shared_buffer *buffer = NULL;
    const size_t part = words * sizeof(uint32_t);
    FSDP_TRY(fsdp_shared_buffer_create(group, part * (size_t)ranks, &buffer));
    const uint64_t before = fsdp_group_get_counters(group).moved_bytes;
    uint32_t *data = fsdp_shared_buffer_data(buffer);
    for (uint32_t step = 1; step <= 3; step++) {
        const fsdp_phase_info info = {.unit = 1, .step = step, .kind = FSDP_KIND_WRITE_SHARD};
        FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_WRITE, &info));
        for (size_t i = 0; i < words; i++)
            data[(size_t)rank * words + i] = (uint32_t)i * 7 + (uint32_t)rank * 31 + step;
        fsdp_phase_wrote(buffer, FSDP_ALL_READERS, (size_t)rank * part, part);
        fsdp_phase_end(buffer);
        FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_READ, &info));
        for (size_t i = 0; i < words * (size_t)ranks; i++)
            if (data[i] != (uint32_t)(i % words) * 7 + (uint32_t)(i / words) * 31 + step)
                return fsdp_error(FSDP_ERR_STATE, "word %zu is wrong in step %u", i, step);
        fsdp_phase_end(buffer);
    }
    const uint64_t moved = fsdp_group_get_counters(group).moved_bytes - before;
    fsdp_shared_buffer_destroy(buffer);
    const int hosts = ranks / fsdp_group_local_world_size(group);
    return moved == 3 * part * (size_t)(hosts - 1)
               ? FSDP_OK
               : fsdp_error(FSDP_ERR_STATE, "%llu bytes moved", (unsigned long long)moved);
}

static fsdp_status expect_error(fsdp_group *group, fsdp_status status, const char *part)
{
    if (status == FSDP_OK)
        return fsdp_error(FSDP_ERR_STATE, "rank %d saw no failure", fsdp_group_rank(group));
    return strstr(fsdp_last_error(), part)
               ? FSDP_OK
               : fsdp_error(FSDP_ERR_STATE, "the message is: %s", fsdp_last_error());
}

static fsdp_status fail_last_rank(fsdp_group *group, void *arg)
{
    (void)arg;
    const int last = fsdp_group_world_size(group) - 1;
    char expected[80];
    FSDP_TRY(fsdp_barrier(group));
    fsdp_group_at(group, 3, "", "forward");
    snprintf(expected, sizeof expected, "rank %d failed in step 3, forward: the loss is NaN", last);
    if (fsdp_group_rank(group) == last) {
        fsdp_group_abort(group, fsdp_error(FSDP_ERR_NUMERIC, "the loss is NaN"));
        return FSDP_OK;
    }
    return expect_error(group, fsdp_barrier(group), expected);
}

/* Two ranks of different hosts that pass different sizes. */
static fsdp_status diverge(fsdp_group *group, void *arg)
{
    (void)arg;
    float values[8] = {0};
    const int last = fsdp_group_world_size(group) - 1;
    FSDP_TRY(fsdp_barrier(group));
    fsdp_status status = fsdp_all_reduce(group, values, fsdp_group_rank(group) == last ? 7 : 8,
                                         FSDP_DTYPE_F32, FSDP_REDUCE_SUM);
    return expect_error(group, status, "ranks diverged");
}

/* A rank that leaves, while a rank of another host waits for it. */
static fsdp_status leave_early(fsdp_group *group, void *arg)
{
    (void)arg;
    FSDP_TRY(fsdp_barrier(group));
    return fsdp_group_rank(group) == 0
               ? FSDP_OK
               : expect_error(group, fsdp_barrier(group), "rank 0 has left the group");
}

/* The last rank is stopped, so MPI_Finalize() would wait for it. */
static fsdp_status stop_last_rank(fsdp_group *group, void *arg)
{
    (void)arg;
    FSDP_TRY(fsdp_barrier(group));
    if (fsdp_group_rank(group) == fsdp_group_world_size(group) - 1)
        raise(SIGSTOP);
    return expect_error(group, fsdp_barrier(group), "has not moved for");
}

/* With one rank on a host, the host's part of a buffer is the whole buffer. */
static fsdp_status discard_a_part(fsdp_group *group, void *arg)
{
    enum {
        PAGES = 32,
        KEPT = 8
    };
    (void)arg;
    fsdp_shared_buffer *buffer = NULL;
    unsigned char resident[PAGES];
    const size_t half = (size_t)PAGES * FSDP_COMM_PAGE / 2;
    const size_t own = (size_t)fsdp_group_rank(group) * half;
    const fsdp_phase_info info = {.unit = 1, .kind = FSDP_KIND_WRITE_SHARD};
    FSDP_TRY(fsdp_shared_buffer_create(group, 2 * half, &buffer));
    unsigned char *data = fsdp_shared_buffer_data(buffer);
    FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_WRITE, &info));
    memset(data + own, 1, half);
    fsdp_phase_wrote(buffer, FSDP_ALL_READERS, own, half);
    fsdp_phase_end(buffer);
    FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_READ, &info));
    fsdp_phase_end(buffer);
    FSDP_TRY(fsdp_shared_buffer_discard(buffer, (size_t)KEPT * FSDP_COMM_PAGE));
    int n = 0;
    if (mincore(data, 2 * half, resident) != 0)
        return fsdp_error(FSDP_ERR_IO, "mincore failed");
    for (int i = 0; i < PAGES; i++)
        n += resident[i] & 1;
    fsdp_shared_buffer_destroy(buffer);
    return n == KEPT ? FSDP_OK : fsdp_error(FSDP_ERR_STATE, "%d pages remain", n);
}

static const struct {
    const char *name;
    fsdp_rank_fn *body;
} bodies[] = {{"conformance", comm_conformance},
              {"stress", run_stress},
              {"random", run_random},
              {"fail", fail_last_rank},
              {"large", exchange_large_parts},
              {"diverge", diverge},
              {"leave", leave_early},
              {"stop", stop_last_rank},
              {"discard", discard_a_part}};

TEST(body_of_a_rank_of_mpi)
{
    const char *name = getenv(body_env);
    fsdp_group *group = NULL;
    size_t i = 0;
    if (!name)
        SKIP("other tests start it");
    while (i < FSDP_LENGTH(bodies) && strcmp(bodies[i].name, name) != 0)
        i++;
    ASSERT(i < FSDP_LENGTH(bodies));
    ASSERT_OK(fsdp_init_process_group(NULL, &group));
    const fsdp_status status = bodies[i].body(group, NULL);
    if (status != FSDP_OK) {
        fsdp_test_fail(t, __FILE__, __LINE__, "rank %d: %s: %s", fsdp_group_rank(group), name,
                       fsdp_last_error());
        fsdp_group_abort(group, status);
    } else {
        /* After a failure, the launcher may end this process as soon as another one has ended. */
        printf("rank done\n");
        fflush(stdout);
    }
    fsdp_destroy_process_group(group);
}

/* ---- starting ranks ---- */

typedef struct launcher {
    const char *name; /* in the messages of tests */
    const char *words[8];
} launcher;

static const launcher open_mpi = {
    "Open MPI", {"mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-np", NULL}};
static const launcher mpich = {"MPICH", {"mpiexec.hydra", "-np", NULL}};

static bool is_installed(const char *program)
{
    char *path = fsdp_program_find(program);
    fsdp_free(path);
    return path != NULL;
}

/* Start `ranks` ranks on `hosts` imagined hosts. The output is written to the file `log`. Return
 * the exit status of the launcher. */
static int start(const launcher *l, const char *body, int ranks, int hosts, const char *log)
{
    char n[16], h[16];
    char *argv[16];
    int argc = 0, status;
    snprintf(n, sizeof n, "%d", ranks);
    snprintf(h, sizeof h, "%d", hosts);
    for (; l->words[argc]; argc++)
        argv[argc] = (char *)(uintptr_t)l->words[argc];
    argv[argc++] = n;
    argv[argc++] = (char[]){"/proc/self/exe"};
    char self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    argv[argc - 1] = self;
    argv[argc++] = (char[]){"body_of_a_rank_of_mpi"};
    argv[argc] = NULL;
    const pid_t pid = fork();
    if (pid == 0) {
        const int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(fd, 1);
        dup2(fd, 2);
        setenv(body_env, body, 1);
        setenv("FSDP_TEST_HOSTS", h, 1);
        if (strcmp(body, "stop") == 0)
            setenv("FSDP_STALL_S", "1.5", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
        unsetenv("WORLD_SIZE");
        unsetenv("RANK");
        execvp(argv[0], argv);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void print_log(const char *log)
{
    char line[512];
    FILE *file = fopen(log, "r");
    while (file && fgets(line, sizeof line, file))
        fputs(line, stdout);
    if (file)
        fclose(file);
}

/* Return how many ranks have succeeded. The launcher may mix the lines of several ranks. */
static int count_successes(const char *log)
{
    char line[512];
    int n = 0;
    FILE *file = fopen(log, "r");
    while (file && fgets(line, sizeof line, file))
        for (const char *at = line; (at = strstr(at, "rank done")) != NULL; at++)
            n++;
    if (file)
        fclose(file);
    return n;
}

/* After a failure MPI is not finalized, so the launcher's exit status is not 0. */
static void run(fsdp_test *t, const launcher *l, const char *body, int ranks, int hosts,
                bool has_failure)
{
    char log[256];
    if (!is_installed(l->words[0]))
        SKIP("%s is not installed", l->words[0]);
#ifndef FSDP_HAVE_MPI
    SKIP("built without MPI");
#endif
    if (UNDER_SANITIZER)
        SKIP("MPI's own memory would be reported");
    snprintf(log, sizeof log, "%s/log", fsdp_test_dir(t));
    const int status = start(l, body, ranks, hosts, log);
    const int expected = strcmp(body, "stop") == 0 ? ranks - 1 : ranks;
    if ((status != 0 && !has_failure) || count_successes(log) != expected) {
        print_log(log);
        FAIL("%s: %s with %d ranks on %d hosts: exit status %d", l->name, body, ranks, hosts,
             status);
    }
}

TEST(conformance_with_open_mpi)
{
    static const int shapes[][2] = {{2, 1}, {4, 2}, {3, 3}};
    for (size_t i = 0; i < FSDP_LENGTH(shapes) && !t->skipped; i++) {
        run(t, &open_mpi, "conformance", shapes[i][0], shapes[i][1], false);
        CHECK_HERE();
    }
}

TEST(conformance_with_mpich)
{
    static const int shapes[][2] = {{2, 2}, {4, 2}};
    for (size_t i = 0; i < FSDP_LENGTH(shapes) && !t->skipped; i++) {
        run(t, &mpich, "conformance", shapes[i][0], shapes[i][1], false);
        CHECK_HERE();
    }
}

TEST(random_phases_between_hosts_read_no_stale_byte)
{
    run(t, &open_mpi, "stress", 4, 2, false);
}

TEST(random_collectives_between_hosts_and_within_halves_are_right)
{
    run(t, &mpich, "random", 4, 2, false);
}

TEST(parts_of_many_pieces_arrive_and_their_bytes_are_counted)
{
    run(t, &mpich, "large", 4, 2, false);
}

TEST(a_failing_rank_is_named_on_other_hosts)
{
    run(t, &open_mpi, "fail", 4, 2, true);
}

TEST(ranks_of_two_hosts_that_diverge_are_found)
{
    run(t, &mpich, "diverge", 2, 2, true);
}

TEST(a_rank_that_left_is_named_on_another_host)
{
    run(t, &open_mpi, "leave", 2, 2, true);
}

TEST(a_job_of_one_host_ends_although_a_rank_is_stopped)
{
    run(t, &mpich, "stop", 2, 1, true);
}

TEST(a_discard_keeps_the_part_of_each_rank_of_a_host)
{
    run(t, &mpich, "discard", 2, 2, false);
}
