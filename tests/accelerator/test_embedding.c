/* An accelerator in a program that has its own signal handlers, output and MPI. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/accelerator/job.h"
#include "tests/test.h"

enum {
    SIGNALS = 65
};

static void own_handler(int signal)
{
    (void)signal;
}

static fsdp_status train_rank(fsdp_group *group, void *arg)
{
    const job_options options = {.dropout = 0.1, .total_steps = 20, .max_grad_norm = 1};
    job j;
    fsdp_status status = job_open(&j, group, &options);
    if (status == FSDP_OK)
        status = job_epoch(&j);
    if (status == FSDP_OK)
        status = fsdp_accelerator_save_state(j.accelerator, arg);
    if (status == FSDP_OK)
        status = fsdp_accelerator_load_state(j.accelerator, arg);
    if (status != FSDP_OK)
        fsdp_group_abort(group, status);
    job_close(&j);
    return status;
}

static void read_handlers(struct sigaction handlers[SIGNALS])
{
    memset(handlers, 0, sizeof *handlers * SIGNALS);
    for (int i = 1; i < SIGNALS; i++)
        (void)sigaction(i, NULL, &handlers[i]); /* two numbers are the C library's own */
}

/* Threads as ranks train, save and load: all handlers and the mask stay as the program set them. */
TEST(signal_handlers_of_the_program_are_untouched)
{
    static struct sigaction before[SIGNALS], after[SIGNALS];
    const struct sigaction own = {.sa_handler = own_handler};
    struct sigaction old;
    sigset_t mask_before, mask_after;
    char dir[300];
    snprintf(dir, sizeof dir, "%s/state", fsdp_test_dir(t));
    ASSERT_INT(sigaction(SIGUSR1, &own, &old), 0);
    read_handlers(before);
    pthread_sigmask(SIG_SETMASK, NULL, &mask_before);
    ASSERT_OK(fsdp_run_ranks(2, train_rank, dir, NULL));
    pthread_sigmask(SIG_SETMASK, NULL, &mask_after);
    read_handlers(after);
    for (int i = 1; i < SIGNALS; i++) {
        ASSERT(before[i].sa_handler == after[i].sa_handler);
        ASSERT_INT(before[i].sa_flags, after[i].sa_flags);
        ASSERT_INT(sigismember(&mask_before, i), sigismember(&mask_after, i));
    }
    ASSERT(after[SIGUSR1].sa_handler == own_handler);
    sigaction(SIGUSR1, &old, NULL);
}

/* Send `fd` to a temporary file. Return what it was. */
static int divert(int fd, FILE *to)
{
    const int old = dup(fd);
    dup2(fileno(to), fd);
    return old;
}

static void restore(int fd, int old)
{
    dup2(old, fd);
    close(old);
}

TEST(the_library_prints_nothing)
{
    char dir[300];
    FILE *to = tmpfile();
    ASSERT(to);
    snprintf(dir, sizeof dir, "%s/state", fsdp_test_dir(t));
    fflush(stdout);
    const int out = divert(1, to), err = divert(2, to);
    const fsdp_status good = fsdp_run_ranks(2, train_rank, dir, NULL);
    const fsdp_status bad = fsdp_run_ranks(2, train_rank, NULL, NULL); /* no folder to save to */
    fflush(stdout);
    restore(1, out);
    restore(2, err);
    ASSERT_OK(good);
    ASSERT(bad == FSDP_ERR_INVALID);
    ASSERT_INT(lseek(fileno(to), 0, SEEK_END), 0);
    fclose(to);
}

/* A task of mpirun is not one rank of a job of its own, so it cannot join one; but a program that
 * mpirun has started may train on threads. The variables are those of Open MPI. */
TEST(a_task_of_mpi_may_give_its_own_group)
{
    if (UNDER_SANITIZER)
        SKIP("the MPI libraries leak");
    char dir[300];
    fsdp_accelerator *a;
    snprintf(dir, sizeof dir, "%s/state", fsdp_test_dir(t));
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    const fsdp_status alone = fsdp_accelerator_create(NULL, &a);
    const fsdp_status threads = fsdp_run_ranks(2, train_rank, dir, NULL);
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("OMPI_COMM_WORLD_RANK");
    ASSERT(alone == FSDP_ERR_UNSUPPORTED);
    ASSERT_OK(threads);
}

/* Two trainings at the same time in one process, each with ranks of its own. */
static void *train_beside(void *arg)
{
    return fsdp_run_ranks(2, train_rank, arg, NULL) == FSDP_OK ? arg : NULL;
}

TEST(two_trainings_may_run_in_one_process)
{
    char dirs[2][300];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        snprintf(dirs[i], sizeof dirs[i], "%s/state%d", fsdp_test_dir(t), i);
        ASSERT_INT(pthread_create(&threads[i], NULL, train_beside, dirs[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        void *result;
        pthread_join(threads[i], &result);
        ASSERT(result == dirs[i]);
    }
}
