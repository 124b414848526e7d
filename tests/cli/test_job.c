/* `fsdp launch` with ranks that communicate: this program starts itself under the launcher.
 * FSDP_TEST_JOB says what a rank does. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/comm/comm.h"
#include "tests/test.h"

static void misbehave(fsdp_group *group, const char *job)
{
    if (strcmp(job, "killed") == 0)
        raise(SIGKILL);
    if (strcmp(job, "stopped for good") == 0 || strcmp(job, "two stopped for good") == 0)
        raise(SIGSTOP);
    if (strcmp(job, "stopped") == 0) {
        pid_t stopped = getpid(), waker = fork();
        if (waker == 0) {
            sleep(2);
            kill(stopped, SIGCONT);
            _exit(0);
        }
        raise(SIGSTOP);
        waitpid(waker, NULL, 0);
    }
    if (strcmp(job, "vanishes") == 0)
        _exit(0);
    if (strcmp(job, "fails") == 0) {
        fsdp_group_abort(group, fsdp_error(FSDP_ERR_NUMERIC, "the loss is NaN"));
        _exit(1);
    }
}

static int count_threads(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *task; tasks && (task = readdir(tasks));)
        n += task->d_name[0] != '.';
    if (tasks)
        closedir(tasks);
    return n;
}

/* A rank: twenty barriers; rank 1 misbehaves before the fourth. Passes when run as a test. */
TEST(a_rank_of_a_job)
{
    const char *job = getenv("FSDP_TEST_JOB");
    const int threads = count_threads();
    fsdp_group *group;
    if (!job)
        return;
    ASSERT_OK(fsdp_init_process_group(NULL, &group));
    fsdp_status status = FSDP_OK;
    for (uint32_t step = 0; step < 20 && status == FSDP_OK; step++) {
        fsdp_group_at(group, step, "decoder.block.2", "unshard");
        const int rank = fsdp_group_rank(group);
        if (step == 3 && (rank == 1 || (rank == 2 && strcmp(job, "two stopped for good") == 0)))
            misbehave(group, job);
        status = fsdp_barrier(group);
    }
    if (strcmp(job, "stays") == 0)
        _exit(0);
    if (status != FSDP_OK)
        fprintf(stderr, "%s\n", fsdp_last_error());
    fsdp_destroy_process_group(group);
    /* A thread that was joined may stay in the list until the kernel has removed it. */
    for (int i = 0; !UNDER_TSAN && count_threads() != threads; i++) {
        ASSERT(i < 60000);
        usleep(1000);
    }
    if (status != FSDP_OK)
        _exit(1);
}

typedef struct outcome {
    int code;
    char text[4096]; /* stdout and stderr of the launcher and its ranks */
} outcome;

static void launch(fsdp_test *t, const char *job, outcome *o)
{
    char self[512], command[2048];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    ASSERT(length > 0);
    self[length] = 0;
    char *tests = strstr(self, "/tests/cli/");
    ASSERT(tests);
    snprintf(
        command, sizeof command,
        "FSDP_TEST_JOB='%s' timeout -s KILL 60 '%.*s/fsdp' launch -n 3 '%s' a_rank_of_a_job 2>&1",
        job, (int)(tests - self), self, self);
    FILE *pipe = popen(command, "r");
    ASSERT(pipe);
    size_t n = fread(o->text, 1, sizeof o->text - 1, pipe);
    o->text[n] = 0;
    int status = pclose(pipe);
    o->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define ASSERT_SAYS(o, words)                                                                      \
    do {                                                                                           \
        if (!strstr((o).text, (words)))                                                            \
            FAIL("the output lacks '%s': %s", (words), (o).text);                                  \
    } while (0)

TEST(ranks_that_work_succeed)
{
    outcome o;
    launch(t, "works", &o);
    CHECK_HERE();
    ASSERT_INT(o.code, 0);
}

TEST(forgetting_to_leave_at_the_end_is_no_failure)
{
    outcome o;
    launch(t, "stays", &o);
    CHECK_HERE();
    ASSERT_INT(o.code, 0);
}

TEST(a_killed_rank_ends_the_job_and_is_named_with_its_place)
{
    outcome o;
    launch(t, "killed", &o);
    CHECK_HERE();
    ASSERT_INT(o.code, 1);
    ASSERT_SAYS(o, "fsdp launch: rank 1 (pid ");
    ASSERT_SAYS(o, "was killed by signal 9 (Killed) at step 3, decoder.block.2, unshard");
}

TEST(a_failing_rank_is_named_with_its_message)
{
    outcome o;
    launch(t, "fails", &o);
    CHECK_HERE();
    ASSERT_INT(o.code, 1);
    ASSERT_SAYS(o, "fsdp launch: rank 1 (pid ");
    ASSERT_SAYS(o, "exited with status 1 at step 3, decoder.block.2, unshard: the loss is NaN");
    ASSERT(!strstr(o.text, "rank 0 (pid"));
}

TEST(a_rank_that_leaves_early_is_named)
{
    outcome o;
    launch(t, "vanishes", &o);
    CHECK_HERE();
    ASSERT_INT(o.code, 1);
    ASSERT_SAYS(o, "fsdp launch: rank 1 (pid ");
}

TEST(a_rank_stopped_for_good_ends_the_job_and_all_say_the_same)
{
    outcome o;
    launch(t, "stopped for good", &o);
    CHECK_HERE();
    ASSERT_INT(o.code, 1);
    ASSERT_SAYS(o, "rank 1 in step 3, unit decoder.block.2, unshard: has not moved for ");
    ASSERT_SAYS(o, "fsdp launch: rank 1 (pid ");
    ASSERT_SAYS(o, " at step 3, decoder.block.2, unshard: has not moved for ");
}

/* Besides the accused rank, all others are continued and see the abort. Otherwise they would be
 * killed by SIGTERM without a message. */
TEST(ranks_stopped_together_all_see_the_abort)
{
    static const char words[] = "has not moved for ";
    int reports = 0;
    outcome o;
    if (UNDER_SANITIZER)
        SKIP("it may need more than the two seconds of the launcher's patience");
    launch(t, "two stopped for good", &o);
    CHECK_HERE();
    ASSERT_INT(o.code, 1);
    for (const char *at = o.text; (at = strstr(at, words)); at += strlen(words))
        reports++;
    if (reports != 3 + 1)
        FAIL("not reported by three ranks and the launcher: %s", o.text);
}

/* A stopped rank is not a failure: the user who stopped it may continue it. */
TEST(a_stopped_rank_is_reported_and_may_continue)
{
    outcome o;
    launch(t, "stopped", &o);
    CHECK_HERE();
    ASSERT_INT(o.code, 0);
    ASSERT_SAYS(o, "fsdp launch: rank 1 (pid ");
    ASSERT_SAYS(o, "is stopped; its peers wait for it");
}
