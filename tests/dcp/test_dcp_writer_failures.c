/* Saves of torch.distributed.checkpoint that fail do so on all ranks and leave nothing behind. */
#include <signal.h>
#include <string.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/io.h"
#include "tests/dcp/dcp_case.h"

/* ---- failures -------------------------------------------------------------------------------- */

static fsdp_status fail_to_read(void *context, uint64_t offset, void *out, size_t bytes)
{
    (void)context, (void)offset, (void)out, (void)bytes;
    return fsdp_error(FSDP_ERR_STATE, "the dog ate it");
}

/* One tensor of `rows` rows, of which this rank has [begin, end). */
static fsdp_status save_one(fsdp_test *t, const char *dir, int64_t rows, int64_t begin, int64_t end,
                            bool fails)
{
    static const char data[64];
    fsdp_dcp_manifest *manifest;
    fsdp_dcp_tensor x = {.dtype_name = "U8", .shape = &rows, .ndim = 1, .begin = begin, .end = end};
    x.data = fails ? NULL : data;
    x.read = fail_to_read;
    FSDP_TRY(fsdp_dcp_manifest_create(&manifest));
    fsdp_status status =
        fsdp_dcp_manifest_tensor(manifest, (fsdp_dcp_key[]){{.name = "a"}, {.name = "x"}}, 2, &x);
    status = fsdp_dcp_save_manifest(status, &(fsdp_group_place){.path = dir}, t->group, manifest);
    fsdp_dcp_manifest_destroy(manifest);
    return status;
}

static void check_nothing_left(fsdp_test *t)
{
    char **names;
    size_t count;
    ASSERT_OK(fsdp_barrier(t->group));
    if (t->rank > 0)
        return;
    ASSERT_OK(fsdp_directory_list(fsdp_test_dir(t), &names, &count));
    fsdp_free(names);
    ASSERT_INT(count, 0);
}

TEST_RANKS(a_failure_of_one_rank_is_one_of_all_and_leaves_nothing, 3)
{
    char dir[300];
    int r = t->rank;
    ASSERT_OK(dcp_case_path(t, "out", dir));
    ASSERT_ERROR(save_one(t, dir, 6, 2 * r, 2 * r + 2, r == 1), FSDP_ERR_STATE,
                 r == 1 ? "'a.x': the dog ate it" : "rank 1: 'a.x': the dog ate it");
    check_nothing_left(t);
}

TEST_RANKS(plans_that_do_not_fit_together_are_refused_on_all_ranks, 3)
{
    char dir[300];
    int r = t->rank;
    ASSERT_OK(dcp_case_path(t, "out", dir));
    ASSERT_ERROR(save_one(t, dir, 6, 2 * r, 2 * r + 1, false), FSDP_ERR_INVALID,
                 "'a.x': the ranks have 3 of its 6 rows");
    ASSERT_ERROR(save_one(t, dir, 6, 2 * r, r < 2 ? 2 * r + 3 : 6, false), FSDP_ERR_INVALID,
                 "'a.x': rows of ranks 0 and 1 overlap");
    ASSERT_ERROR(save_one(t, dir, r == 2 ? 7 : 6, 2 * r, 2 * r + 2, false), FSDP_ERR_INVALID,
                 "entry 0, 'a.x' on this rank, is not the same on ranks 0 and 2");
    fsdp_dcp_manifest *manifest;
    fsdp_pickle_writer w = {0};
    ASSERT_OK(fsdp_dcp_manifest_create(&manifest));
    if (r == 1) {
        fsdp_pickle_put_none(&w);
        ASSERT_OK(fsdp_dcp_manifest_value(manifest, (fsdp_dcp_key[]){{.name = "x"}}, 1, &w));
    }
    ASSERT_ERROR(
        fsdp_dcp_save_manifest(FSDP_OK, &(fsdp_group_place){.path = dir}, t->group, manifest),
        FSDP_ERR_INVALID, "one rank has 0 entries, another 1");
    fsdp_dcp_manifest_destroy(manifest);
    check_nothing_left(t);
}

TEST_RANKS(a_place_that_cannot_be_written_is_an_error_on_all_ranks, 2)
{
    char file[300], dir[310];
    ASSERT_OK(dcp_case_path(t, "file", file));
    snprintf(dir, sizeof dir, "%s/out", file);
    if (t->rank == 0)
        ASSERT_OK(fsdp_file_write(file, "x", 1));
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT_ERROR(save_one(t, file, 2, t->rank, t->rank + 1, false), FSDP_ERR_INVALID,
                 "exists and is not a directory");
    ASSERT(save_one(t, dir, 2, t->rank, t->rank + 1, false) != FSDP_OK);
    ASSERT(strstr(fsdp_last_error(), dir) != NULL);
}

TEST(entries_that_cannot_be_written_are_refused)
{
    fsdp_dcp_manifest *manifest;
    fsdp_pickle_writer w = {0};
    fsdp_dcp_key x[] = {{.name = "x"}, {.name = "y"}}, y[] = {{.name = "x.y"}};
    int64_t shape[] = {4, 1LL << 62};
    fsdp_dcp_tensor good = {.dtype_name = "F32", .shape = shape, .ndim = 1, .end = 4, .data = "x"};
    fsdp_dcp_tensor bad = good;
    ASSERT_OK(fsdp_dcp_manifest_create(&manifest));
    bad.dtype_name = "F4";
    ASSERT_ERROR(fsdp_dcp_manifest_tensor(manifest, x, 2, &bad), FSDP_ERR_UNSUPPORTED,
                 "'x.y': torch has no dtype F4");
    bad = good;
    bad.end = 5;
    ASSERT_ERROR(fsdp_dcp_manifest_tensor(manifest, x, 2, &bad), FSDP_ERR_INVALID,
                 "'x.y' has no rows [0, 5)");
    bad = good;
    bad.ndim = 2;
    ASSERT_ERROR(fsdp_dcp_manifest_tensor(manifest, x, 2, &bad), FSDP_ERR_INVALID,
                 "'x.y': its shape has more elements than a file can hold");
    bad = good;
    bad.data = NULL;
    ASSERT_ERROR(fsdp_dcp_manifest_tensor(manifest, x, 2, &bad), FSDP_ERR_INVALID,
                 "'x.y': its rows have no data");
    ASSERT_OK(fsdp_dcp_manifest_tensor(manifest, x, 2, &good));
    fsdp_pickle_put_none(&w);
    ASSERT_OK(fsdp_dcp_manifest_value(manifest, y, 1, &w));
    char dir[300];
    ASSERT_OK(dcp_case_path(t, "out", dir));
    ASSERT_ERROR(fsdp_dcp_save_manifest(FSDP_OK, &(fsdp_group_place){.path = dir}, NULL, manifest),
                 FSDP_ERR_INVALID, "'x.y': two entries have this name");
    ASSERT(!fsdp_path_is_directory(dir));
    fsdp_dcp_manifest_destroy(manifest);
}

/* ---- disks and memory that end --------------------------------------------------------------- */

typedef struct job {
    const char *dir;
    int failing; /* rank */
    long n;      /* number of the allocation that fails; 0: none */
} job;

static fsdp_status save_on_rank(fsdp_group *group, void *arg)
{
    const job *j = arg;
    if (fsdp_group_rank(group) == j->failing)
        fsdp_alloc_fail_at(j->n);
    fsdp_status status = dcp_case_save(j->dir, group, FSDP_EXISTING_REFUSE);
    fsdp_alloc_fail_at(0);
    return status;
}

static bool is_empty(const char *dir)
{
    char **names;
    size_t count = 1;
    if (fsdp_directory_list(dir, &names, &count) == FSDP_OK)
        fsdp_free(names);
    return count == 0;
}

/* Exits with 0 if files that the system truncates are an error on both ranks and leave nothing
 * behind. */
static void save_beyond_the_limit(const char *parent, const char *dir)
{
    fsdp_status status[2];
    job j = {.dir = dir, .failing = -1};
    struct rlimit limit = {.rlim_cur = 20000, .rlim_max = 20000};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        _exit(9);
    if (fsdp_run_ranks(2, save_on_rank, &j, status) != FSDP_ERR_IO)
        _exit(1);
    if (status[0] != FSDP_ERR_IO || status[1] != FSDP_ERR_IO)
        _exit(2);
    if (!strstr(fsdp_last_error(), "distcp") || !strstr(fsdp_last_error(), "bytes failed"))
        _exit(3);
    _exit(is_empty(parent) ? 0 : 4);
}

TEST(files_that_are_cut_off_leave_nothing)
{
    char dir[300];
    ASSERT_OK(dcp_case_path(t, "out", dir));
    pid_t child = fork();
    if (child == 0)
        save_beyond_the_limit(fsdp_test_dir(t), dir);
    int status = -1;
    ASSERT(waitpid(child, &status, 0) == child);
    ASSERT(WIFEXITED(status));
    ASSERT_INT(WEXITSTATUS(status), 0);
}

/* A rank that cannot receive the successful outcome fails, but the checkpoint is whole. */
static void check_all_or_nothing(fsdp_test *t, const char *dir)
{
    if (fsdp_path_is_directory(dir)) {
        dcp_case_check(t, dir);
        ASSERT_OK(fsdp_tree_remove(dir));
    }
    ASSERT(is_empty(fsdp_test_dir(t)));
}

static void check_memory_that_ends(fsdp_test *t, int world_size, int failing)
{
    char dir[300];
    ASSERT_OK(dcp_case_path(t, "out", dir));
    for (long n = 1; n<5000; n += world_size> 1 ? 7 : 1) {
        job j = {.dir = dir, .failing = failing, .n = n};
        fsdp_status status[2] = {0};
        fsdp_status first = fsdp_run_ranks(world_size, save_on_rank, &j, status);
        if (first == FSDP_OK) {
            ASSERT(n > 100);
            dcp_case_check(t, dir);
            return;
        }
        ASSERT_INT(status[failing], FSDP_ERR_NOMEM);
        for (int r = 0; r < world_size; r++)
            ASSERT(status[r] != FSDP_OK);
        check_all_or_nothing(t, dir);
        CHECK_HERE();
    }
    FAIL("it never succeeds");
}

TEST(running_out_of_memory_is_an_error_and_leaves_nothing)
{
    check_memory_that_ends(t, 1, 0);
}

TEST(running_out_of_memory_on_one_rank_is_an_error_on_all)
{
    check_memory_that_ends(t, 2, 1);
}
