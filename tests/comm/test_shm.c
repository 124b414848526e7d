/* Ranks as real processes: conformance, the phase protocol, death of a rank, bad environments. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/comm/group.h"
#include "src/comm/group_testing.h"
#include "src/comm/host_memory.h"
#include "tests/comm/conformance.h"
#include "tests/comm/processes.h"
#include "tests/comm/stress.h"
#include "tests/test.h"

/* On any machine; a rank that sees no failure waits for the timeout of ten minutes. */
static const double soon_s = 60;

static void run_all_ok(fsdp_test *t, int world_size, fsdp_rank_fn *body, void *arg)
{
    process_result results[MAX_PROCESSES];
    fsdp_rendezvous_report report;
    ASSERT_OK(run_processes(world_size, body, arg, results, &report));
    for (int r = 0; r < world_size; r++) {
        if (results[r].status != FSDP_OK || results[r].signal)
            FAIL("rank %d of %d: signal %d, %s: %s", r, world_size, results[r].signal,
                 fsdp_status_name(results[r].status), results[r].message);
    }
    ASSERT_STR(report.text, "");
}

TEST(conformance_over_shm)
{
    for (int world_size = 2; world_size <= 4; world_size++) {
        run_all_ok(t, world_size, comm_conformance, NULL);
        CHECK_HERE();
    }
    run_all_ok(t, 8, comm_conformance, NULL);
}

static fsdp_status check_backend(fsdp_group *group, void *arg)
{
    (void)arg;
    if (strcmp(fsdp_group_backend(group), "shm") != 0)
        return fsdp_error(FSDP_ERR_STATE, "the backend is %s", fsdp_group_backend(group));
    return FSDP_OK;
}

/* A rank that has joined has already beaten at least once. Otherwise the stop of a rank right after
 * joining would not be detected. */
static fsdp_status check_beats(fsdp_group *group, void *arg)
{
    (void)arg;
    for (int r = 0; r < fsdp_group_world_size(group); r++)
        if (atomic_load(&group->control->board[r].beat) == 0)
            return fsdp_error(FSDP_ERR_STATE, "rank %d has joined and does not beat", r);
    return FSDP_OK;
}

TEST(ranks_that_have_joined_beat)
{
    for (int round = 0; round < 20; round++) {
        run_all_ok(t, 4, check_beats, NULL);
        CHECK_HERE();
    }
}

TEST(processes_use_shm)
{
    run_all_ok(t, 2, check_backend, NULL);
}

static fsdp_status fill_and_discard(fsdp_group *group, void *arg)
{
    fsdp_shared_buffer *buffer;
    const fsdp_phase_info info = {.kind = FSDP_KIND_STATE_DICT};
    (void)arg;
    FSDP_TRY(fsdp_shared_buffer_create(group, 3 * FSDP_COMM_PAGE + 5, &buffer));
    char *data = fsdp_shared_buffer_data(buffer);
    const size_t part = 3 * FSDP_COMM_PAGE / (size_t)fsdp_group_world_size(group);
    FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_WRITE, &info));
    memset(data + (size_t)fsdp_group_rank(group) * part, 1, part);
    fsdp_phase_end(buffer);
    FSDP_TRY(fsdp_shared_buffer_discard(buffer, 0));
    FSDP_TRY(fsdp_shared_buffer_discard(buffer, 0)); /* no effect: nothing was written since */
    FSDP_TRY(fsdp_barrier(group));
    size_t left = 0;
    for (size_t i = 0; i < 3 * FSDP_COMM_PAGE; i++)
        left += data[i] != 0;
    fsdp_shared_buffer_destroy(buffer);
    return left ? fsdp_error(FSDP_ERR_STATE, "%zu bytes are still there", left) : FSDP_OK;
}

/* There are three parts of three pages. First the first page of each part is kept, then none. */
static fsdp_status discard_in_two_steps(fsdp_group *group, void *arg)
{
    fsdp_shared_buffer *buffer;
    const fsdp_phase_info info = {.kind = FSDP_KIND_STATE_DICT};
    const size_t bytes = 9 * FSDP_COMM_PAGE, part = bytes / 3;
    size_t wrong = 0;
    (void)arg;
    FSDP_TRY(fsdp_shared_buffer_create(group, bytes, &buffer));
    char *data = fsdp_shared_buffer_data(buffer);
    FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_WRITE, &info));
    memset(data + (size_t)fsdp_group_rank(group) * part, 1, part);
    fsdp_phase_end(buffer);
    for (size_t keep = 2; keep-- > 0;) {
        FSDP_TRY(fsdp_shared_buffer_discard(buffer, keep * FSDP_COMM_PAGE));
        FSDP_TRY(fsdp_shared_buffer_discard(buffer, FSDP_COMM_PAGE)); /* no effect: already done */
        FSDP_TRY(fsdp_barrier(group));
        for (size_t i = 0; i < bytes; i++)
            wrong += data[i] != (keep && i % part < FSDP_COMM_PAGE);
        FSDP_TRY(fsdp_barrier(group));
    }
    fsdp_shared_buffer_destroy(buffer);
    return wrong ? fsdp_error(FSDP_ERR_STATE, "%zu bytes are not as expected", wrong) : FSDP_OK;
}

TEST(a_part_of_each_part_is_kept)
{
    run_all_ok(t, 3, discard_in_two_steps, NULL);
}

/* One rank still reads while the other discards twice. The two discards of one rank must not count
 * as the discards of both ranks. */
static fsdp_status read_slowly_beside_discards(fsdp_group *group, void *arg)
{
    fsdp_shared_buffer *buffer;
    const fsdp_phase_info info = {.kind = FSDP_KIND_STATE_DICT};
    const size_t bytes = 8 * FSDP_COMM_PAGE, part = bytes / 2;
    size_t wrong = 0;
    (void)arg;
    FSDP_TRY(fsdp_shared_buffer_create(group, bytes, &buffer));
    const size_t rank = (size_t)fsdp_group_rank(group);
    char *data = fsdp_shared_buffer_data(buffer);
    FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_WRITE, &info));
    memset(data + rank * part, 1, part);
    fsdp_phase_end(buffer);
    FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_READ, &info));
    if (rank == 1)
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    for (size_t i = 0; i < bytes; i++)
        wrong += data[i] != 1;
    fsdp_phase_end(buffer);
    FSDP_TRY(fsdp_shared_buffer_discard(buffer, FSDP_COMM_PAGE));
    FSDP_TRY(fsdp_shared_buffer_discard(buffer, 0));
    FSDP_TRY(fsdp_barrier(group));
    for (size_t i = 0; i < bytes; i++)
        wrong += data[i] != 0;
    fsdp_shared_buffer_destroy(buffer);
    return wrong ? fsdp_error(FSDP_ERR_STATE, "%zu bytes are not as expected", wrong) : FSDP_OK;
}

TEST(who_discards_twice_waits_for_who_still_reads)
{
    run_all_ok(t, 2, read_slowly_beside_discards, NULL);
}

/* Pages that were returned to the system are zero when they are used again. */
TEST(what_is_discarded_is_the_systems)
{
    run_all_ok(t, 3, fill_and_discard, NULL);
}

TEST(no_stale_read_between_2_to_8_processes)
{
    for (int world_size = 2; world_size <= 8; world_size++) {
        stress_options options = {.seed = (uint64_t)world_size,
                                  .phases =
                                      (world_size <= 4 ? 6000 : 1500) / (UNDER_SANITIZER ? 4 : 1),
                                  .max_delay_us = world_size % 2 ? 0 : 20};
        run_all_ok(t, world_size, comm_stress, &options);
        CHECK_HERE();
    }
}

TEST(random_collectives_of_2_to_8_delayed_processes)
{
    for (int world_size = 2; world_size <= 8; world_size += 3) {
        stress_options options = {
            .seed = 300 + (uint64_t)world_size, .phases = 150, .max_delay_us = 200};
        run_all_ok(t, world_size, comm_random_collectives, &options);
        CHECK_HERE();
    }
}

TEST(without_the_writers_wait_stale_reads_are_found)
{
    process_result results[MAX_PROCESSES];
    stress_options options = {
        .seed = 1, .phases = 2000, .max_delay_us = 100, .skip_writer_wait = true};
    fsdp_rendezvous_report report;
    ASSERT_OK(run_processes(3, comm_stress, &options, results, &report));
    ASSERT(strstr(report.message, " violations"));
}

/* ---- failures ---- */

static fsdp_status kill_rank_1(fsdp_group *group, void *arg)
{
    (void)arg;
    FSDP_TRY(fsdp_barrier(group));
    fsdp_group_at(group, 7, "decoder.block.2", "backward");
    if (fsdp_group_rank(group) == 1)
        raise(SIGKILL);
    return fsdp_barrier(group);
}

TEST(survivors_of_kill_9_fail_long_before_the_timeout_and_name_the_dead)
{
    process_result results[MAX_PROCESSES];
    fsdp_rendezvous_report report;
    ASSERT_OK(run_processes(3, kill_rank_1, NULL, results, &report));
    ASSERT_INT(results[1].signal, SIGKILL);
    for (int r = 0; r < 3; r += 2) {
        ASSERT_INT(results[r].status, FSDP_ERR_COMM);
        ASSERT_STR(results[r].message,
                   "rank 1 died (signal 9, Killed) in step 7, unit decoder.block.2, backward");
        ASSERT(results[r].ended_s - results[1].ended_s < soon_s);
    }
    ASSERT_INT(report.rank, 1);
    ASSERT_INT(report.step, 7);
    ASSERT_STR(report.unit, "decoder.block.2");
    ASSERT_STR(report.message, "signal 9, Killed");
}

static fsdp_status fail_rank_2(fsdp_group *group, void *arg)
{
    (void)arg;
    FSDP_TRY(fsdp_barrier(group));
    fsdp_group_at(group, 3, "", "forward");
    if (fsdp_group_rank(group) == 2)
        return fsdp_error(FSDP_ERR_NUMERIC, "the loss is NaN");
    return fsdp_barrier(group);
}

TEST(a_failing_process_is_named_by_the_others)
{
    process_result results[MAX_PROCESSES];
    fsdp_rendezvous_report report;
    ASSERT_OK(run_processes(3, fail_rank_2, NULL, results, &report));
    ASSERT_INT(results[2].status, FSDP_ERR_NUMERIC);
    ASSERT_INT(results[0].status, FSDP_ERR_COMM);
    ASSERT_STR(results[0].message, "rank 2 failed in step 3, forward: the loss is NaN");
    ASSERT_STR(results[1].message, results[0].message);
    ASSERT_INT(report.status, FSDP_ERR_NUMERIC);
    ASSERT_STR(report.text, results[0].message);
}

/* A buffer that is larger than the machine's memory is an error on all ranks, and the group remains
 * usable. */
static fsdp_status create_too_much(fsdp_group *group, void *bytes)
{
    fsdp_shared_buffer *buffer = NULL;
    fsdp_status status = fsdp_shared_buffer_create(group, *(const size_t *)bytes, &buffer);
    if (status != FSDP_ERR_NOMEM || buffer)
        return fsdp_error(FSDP_ERR_STATE, "status %s", fsdp_status_name(status));
    if (!strstr(fsdp_last_error(), "rank 0: shm: ") || !strstr(fsdp_last_error(), "available"))
        return fsdp_error(FSDP_ERR_STATE, "the message is: %s", fsdp_last_error());
    FSDP_TRY(fsdp_shared_buffer_create(group, 100, &buffer));
    fsdp_shared_buffer_destroy(buffer);
    return fsdp_barrier(group);
}

TEST(too_large_a_buffer_is_an_error_on_all_ranks)
{
    size_t bytes = 4 * fsdp_host_memory_available();
    run_all_ok(t, 3, create_too_much, &bytes);
}

static int count_open_files(void)
{
    int count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static fsdp_status create_many(fsdp_group *group, void *arg)
{
    fsdp_shared_buffer *buffers[300] = {0};
    int before = count_open_files();
    (void)arg;
    for (size_t i = 0; i < 300; i++)
        FSDP_TRY(fsdp_shared_buffer_create(group, 4096 + i, &buffers[i]));
    if (count_open_files() != before)
        return fsdp_error(FSDP_ERR_STATE, "%d files are open instead of %d", count_open_files(),
                          before);
    for (size_t i = 0; i < 300; i++)
        fsdp_shared_buffer_destroy(buffers[i]);
    return FSDP_OK;
}

TEST(buffers_leave_no_file_open)
{
    int before = count_open_files();
    run_all_ok(t, 2, create_many, NULL);
    ASSERT_INT(count_open_files(), before);
}

/* Rank 0 creates more memory than there is. It writes only the first page, so there is enough. The
 * peer does not map it. */
static fsdp_status create_sparse(fsdp_group *group, void *arg)
{
    (void)arg;
    if (fsdp_group_rank(group) == 0) {
        fsdp_comm_memory memory = {0};
        fsdp_comm_offer offer = {0};
        FSDP_TRY(
            group->ops->memory_create(group, 2 * fsdp_host_memory_available(), 1, &memory, &offer));
        ((char *)memory.data)[0] = 1;
        group->ops->memory_release(&memory);
    }
    return fsdp_barrier(group);
}

TEST(memory_that_may_stay_unused_gets_its_pages_when_they_are_written)
{
    run_all_ok(t, 2, create_sparse, NULL);
}

static fsdp_status leave_early(fsdp_group *group, void *arg)
{
    (void)arg;
    FSDP_TRY(fsdp_barrier(group));
    return fsdp_group_rank(group) == 0 ? FSDP_OK : fsdp_barrier(group);
}

TEST(a_peer_that_has_left_is_named)
{
    process_result results[MAX_PROCESSES];
    ASSERT_OK(run_processes(2, leave_early, NULL, results, NULL));
    ASSERT_INT(results[0].status, FSDP_OK);
    ASSERT_INT(results[1].status, FSDP_ERR_COMM);
    ASSERT(strstr(results[1].message, "rank 0 has left the group"));
}

/* Rank 1 ends. Its heartbeat ends, too, but it is not stopped: rank 0 may go on as long as it
 * likes, while the thread of an exchange between cards looks at its peers again and again. */
static fsdp_status outlive_rank_1(fsdp_group *group, void *arg)
{
    int stopped;
    double silent_s;
    (void)arg;
    FSDP_TRY(fsdp_barrier(group));
    if (fsdp_group_rank(group) == 1)
        return FSDP_OK;
    for (double start = fsdp_clock_s(); fsdp_heartbeat_silent_s(group->heartbeat, 1) <= 0;) {
        if (fsdp_clock_s() - start > 20.0)
            return fsdp_error(FSDP_ERR_STATE, "rank 1 still beats");
        usleep(10000);
    }
    return fsdp_group_is_stopped(group, 1, &stopped, &silent_s)
               ? fsdp_error(FSDP_ERR_STATE, "rank %d seems to be stopped", stopped)
               : FSDP_OK;
}

TEST(a_peer_that_has_left_is_not_called_stopped)
{
    setenv("FSDP_STALL_S", "1", 1);
    run_all_ok(t, 2, outlive_rank_1, NULL);
    unsetenv("FSDP_STALL_S");
}

/* ---- processes that are stopped ---- */

static void sleep_s(double seconds)
{
    nanosleep(&(struct timespec){(time_t)seconds, (long)(fmod(seconds, 1) * 1e9)}, NULL);
}

/* Rank 1 stops itself. Rank 0 continues it after it has received the error. */
static fsdp_status stop_rank_1(fsdp_group *group, void *arg)
{
    int pid = getpid(), pids[MAX_PROCESSES];
    (void)arg;
    FSDP_TRY(fsdp_all_gather(group, &pid, sizeof pid, pids));
    fsdp_group_at(group, 7, "decoder.block.2", "all_gather in backward");
    if (fsdp_group_rank(group) == 1)
        raise(SIGSTOP);
    double start = fsdp_clock_s();
    fsdp_status status = fsdp_barrier(group);
    if (fsdp_group_rank(group) == 0)
        kill(pids[1], SIGCONT);
    if (fsdp_clock_s() - start > soon_s)
        return fsdp_error(FSDP_ERR_STATE, "error came after %.1f s", fsdp_clock_s() - start);
    return status;
}

TEST(a_stopped_process_is_named_by_all_ranks_itself_included)
{
    process_result results[MAX_PROCESSES];
    fsdp_rendezvous_report report;
    ASSERT_OK(run_processes(3, stop_rank_1, NULL, results, &report));
    for (int r = 0; r < 3; r++) {
        ASSERT_INT(results[r].status, FSDP_ERR_COMM);
        ASSERT_STR(results[r].message, report.text);
    }
    ASSERT(strstr(report.text, "rank 1 in step 7, unit decoder.block.2, all_gather in backward: "
                               "has not moved for "));
    ASSERT_INT(report.rank, 1);
}

/* Rank 0's helper stops all processes, one after the other, for longer than a peer may be silent
 * and longer than a rank waits, and continues them in the same order. */
static void hold_all(const int *pids, int n)
{
    sleep_s(0.3);
    for (int r = 0; r < n; r++)
        kill(pids[r], SIGSTOP);
    sleep_s(5.5);
    for (int r = 0; r < n; r++) {
        kill(pids[r], SIGCONT);
        sleep_s(0.3);
    }
    _exit(0);
}

static fsdp_status be_held(fsdp_group *group, void *arg)
{
    int pid = getpid(), pids[MAX_PROCESSES];
    pid_t helper = -1;
    (void)arg;
    FSDP_TRY(fsdp_all_gather(group, &pid, sizeof pid, pids));
    fsdp_group_set_timeout_ms(group, 4000);
    if (fsdp_group_rank(group) == 0 && (helper = fork()) == 0)
        hold_all(pids, fsdp_group_world_size(group));
    for (double start = fsdp_clock_s(); fsdp_clock_s() - start < 8.0;) {
        sleep_s(fsdp_group_rank(group) == 2 ? 0.2
                                            : 0); /* so that the others are stopped during a wait */
        int32_t x = fsdp_clock_s() - start < 8.0;
        FSDP_TRY(fsdp_all_reduce(group, &x, 1, FSDP_DTYPE_I32, FSDP_REDUCE_MIN));
        if (!x)
            break;
    }
    if (helper > 0)
        waitpid(helper, NULL, 0);
    return FSDP_OK;
}

TEST(a_job_that_is_stopped_as_a_whole_neither_accuses_nor_times_out)
{
    run_all_ok(t, 3, be_held, NULL);
}

/* The process of rank 1 runs, so only the timeout ends a wait for it. */
static fsdp_status loop_on_rank_1(fsdp_group *group, void *arg)
{
    (void)arg;
    FSDP_TRY(fsdp_barrier(group));
    for (double start = fsdp_clock_s(); fsdp_group_rank(group) == 1;)
        if (fsdp_clock_s() - start > 5.5)
            break;
    return fsdp_barrier(group);
}

TEST(a_rank_that_computes_for_long_is_not_accused)
{
    run_all_ok(t, 2, loop_on_rank_1, NULL);
}

/* A forked child has the group's memory but not its thread. */
static fsdp_status drop_in_a_child(fsdp_group *group, void *arg)
{
    int how = -1;
    (void)arg;
    FSDP_TRY(fsdp_barrier(group));
    pid_t child = fork();
    if (child == 0) {
        fsdp_destroy_process_group(group);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &how, 0) != child || how != 0)
        return fsdp_error(FSDP_ERR_STATE, "the child ended with %d", how);
    return FSDP_OK;
}

TEST(a_forked_child_drops_the_group_without_its_thread)
{
    run_all_ok(t, 2, drop_in_a_child, NULL);
}

/* ---- the environment ---- */

/* After exec, a rank has inherited only its own descriptors of the rendezvous. */
TEST(only_the_ranks_own_ends_survive_exec)
{
    fsdp_rendezvous *rendezvous = NULL;
    ASSERT_OK(fsdp_rendezvous_create(4, &rendezvous));
    for (int rank = 0; rank < 4; rank++) {
        char value[128];
        int surviving = 0, listed = 0, pipe_fds[2];
        ASSERT(pipe2(pipe_fds, O_CLOEXEC) == 0);
        fsdp_rendezvous_child_env(rendezvous, rank, value, sizeof value);
        pid_t pid = fork();
        if (pid == 0) {
            fsdp_rendezvous_child(rendezvous, rank);
            for (int fd = 3; fd < 256; fd++) {
                int flags = fcntl(fd, F_GETFD);
                surviving += flags >= 0 && !(flags & FD_CLOEXEC);
            }
            ssize_t written = write(pipe_fds[1], &surviving, sizeof surviving);
            _exit(written != sizeof surviving);
        }
        int inherited = 0; /* inherited by the test program itself, e.g. from a shell */
        for (int fd = 3; fd < 256; fd++) {
            int flags = fcntl(fd, F_GETFD);
            inherited += flags >= 0 && !(flags & FD_CLOEXEC);
        }
        ASSERT(read(pipe_fds[0], &surviving, sizeof surviving) == sizeof surviving);
        close(pipe_fds[0]), close(pipe_fds[1]);
        for (const char *c = value; *c; c++)
            listed += *c == ' ';
        ASSERT_INT(listed, rank == 0 ? 4 : 2);
        ASSERT_INT(surviving, inherited + listed);
    }
    fsdp_rendezvous_destroy(rendezvous);
}

static void set_world(const char *rank, const char *world_size, const char *rendezvous)
{
    unsetenv("LOCAL_RANK"), unsetenv("LOCAL_WORLD_SIZE");
    rank ? setenv("RANK", rank, 1) : unsetenv("RANK");
    world_size ? setenv("WORLD_SIZE", world_size, 1) : unsetenv("WORLD_SIZE");
    rendezvous ? setenv(FSDP_RENDEZVOUS_ENV, rendezvous, 1) : unsetenv(FSDP_RENDEZVOUS_ENV);
}

TEST(malformed_environments_are_clear_errors)
{
    fsdp_group *group = NULL;
    set_world("0", "two", NULL);
    ASSERT_ERROR(fsdp_init_process_group(NULL, &group), FSDP_ERR_INVALID, "WORLD_SIZE is 'two'");
    set_world("2", "2", NULL);
    ASSERT_ERROR(fsdp_init_process_group(NULL, &group), FSDP_ERR_INVALID, "RANK is '2'");
    set_world(NULL, "2", NULL);
    ASSERT_ERROR(fsdp_init_process_group(NULL, &group), FSDP_ERR_INVALID, "RANK is not set");
    set_world("0", "2", NULL);
    ASSERT_ERROR(fsdp_init_process_group(NULL, &group), FSDP_ERR_UNSUPPORTED, "fsdp launch -n 2");
    setenv("LOCAL_WORLD_SIZE", "1", 1);
    ASSERT_ERROR(fsdp_init_process_group(NULL, &group), FSDP_ERR_UNSUPPORTED, "one host");
    ASSERT_ERROR(fsdp_init_process_group("local", &group), FSDP_ERR_INVALID, "world of one");
    set_world("0", NULL, "1 3");
    ASSERT_ERROR(fsdp_init_process_group(NULL, &group), FSDP_ERR_INVALID, "WORLD_SIZE is not");
    set_world(NULL, NULL, NULL);
    ASSERT_ERROR(fsdp_init_process_group("nccl", &group), FSDP_ERR_UNSUPPORTED,
                 "no backend 'nccl'; this build has 'shm' (ranks of `fsdp launch`)");
    ASSERT(strstr(fsdp_last_error(), "'local' (one rank)"));
    ASSERT(strstr(fsdp_last_error(), "Pass NULL"));
    ASSERT_ERROR(fsdp_init_process_group("threads", &group), FSDP_ERR_INVALID, "fsdp_run_ranks");
    setenv("FSDP_TIMEOUT_S", "soon", 1);
    ASSERT_ERROR(fsdp_init_process_group(NULL, &group), FSDP_ERR_INVALID, "'soon'");
    unsetenv("FSDP_TIMEOUT_S");
    setenv("FSDP_STALL_S", "-1", 1);
    ASSERT_ERROR(fsdp_init_process_group(NULL, &group), FSDP_ERR_INVALID, "FSDP_STALL_S is '-1'");
    unsetenv("FSDP_STALL_S");
    ASSERT_OK(fsdp_init_process_group(NULL, &group));
    ASSERT_STR(fsdp_group_backend(group), "local");
    ASSERT_INT(fsdp_group_world_size(group), 1);
    fsdp_destroy_process_group(group);
}

/* Descriptors that are closed, or are files, or belong to another job, are refused and not
 * changed. */
TEST(foreign_descriptors_are_refused)
{
    static const char *const values[] = {"", "1", "2 3 4", "1 3", "1 3 4 5", "1 -3 4", "1 x y"};
    fsdp_group *group = NULL;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        set_world("0", "2", values[i]);
        ASSERT_ERROR(fsdp_init_process_group(NULL, &group), FSDP_ERR_INVALID, "FSDP_RENDEZVOUS");
    }
    char value[64];
    int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    snprintf(value, sizeof value, "1 %d %d", file, file);
    set_world("0", "2", value);
    ASSERT_ERROR(fsdp_init_process_group(NULL, &group), FSDP_ERR_FORMAT, "not shared memory");
    fsdp_rendezvous *rendezvous = NULL;
    ASSERT_OK(fsdp_rendezvous_create(3, &rendezvous)); /* for three ranks, not two */
    fsdp_rendezvous_child_env(rendezvous, 1, value, sizeof value);
    set_world("1", "2", value);
    ASSERT_ERROR(fsdp_init_process_group(NULL, &group), FSDP_ERR_FORMAT, "control block");
    ASSERT(fcntl(file, F_GETFD) >= 0);
    close(file);
    fsdp_rendezvous_destroy(rendezvous);
    set_world(NULL, NULL, NULL);
}

/* Rank 1 never joins, and rank 0 gives up after the timeout. */
TEST(a_rank_that_never_joins_is_a_timeout)
{
    fsdp_rendezvous *rendezvous = NULL;
    fsdp_group *group = NULL;
    char value[64];
    ASSERT_OK(fsdp_rendezvous_create(2, &rendezvous));
    ASSERT_INT(fsdp_rendezvous_rank_state(rendezvous, 0), FSDP_RANK_STARTING);
    fsdp_rendezvous_child_env(rendezvous, 0, value, sizeof value);
    set_world("0", "2", value);
    setenv("FSDP_TIMEOUT_S", "0.3", 1);
    double start = fsdp_clock_s();
    /* Joining closes descriptors of the process, so it is done in a child. */
    pid_t pid = fork();
    if (pid == 0) {
        fsdp_status status = fsdp_init_process_group(NULL, &group);
        _exit(status == FSDP_ERR_TIMEOUT && strstr(fsdp_last_error(), "for rank 1") ? 0 : 1);
    }
    int how = -1;
    ASSERT(waitpid(pid, &how, 0) == pid);
    ASSERT_INT(how, 0);
    ASSERT(fsdp_clock_s() - start < soon_s);
    ASSERT_INT(fsdp_rendezvous_rank_state(rendezvous, 0), FSDP_RANK_LEFT);
    ASSERT_INT(fsdp_rendezvous_rank_state(rendezvous, 1), FSDP_RANK_STARTING);
    unsetenv("FSDP_TIMEOUT_S");
    set_world(NULL, NULL, NULL);
    fsdp_rendezvous_destroy(rendezvous);
}
