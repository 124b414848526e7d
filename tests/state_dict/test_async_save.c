/* Saves during training: the checkpoint has the values of the call, whatever was written since; a
 * save that fails is an error on all ranks, and leaves an existing checkpoint unchanged. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/io.h"
#include "src/base/io_testing.h"
#include "src/comm/group.h"
#include "src/fsdp/param_group.h"
#include "src/state_dict/async_save.h"
#include "tests/state_dict/state_case.h"
#include "tests/test.h"

enum {
    PATH = 300,
    /* staging memory: for everything, for a few tensors, none */
    ROOMY = 1 << 20,
    TIGHT = 40,
    NONE = 1
};

/* A path in the test's directory, on all ranks. */
static void path_of(fsdp_test *t, const char *name, char path[PATH])
{
    if (t->rank == 0)
        snprintf(path, PATH, "%s/%s", fsdp_test_dir(t), name);
    if (t->group)
        ASSERT_OK(fsdp_broadcast(t->group, path, PATH, 0));
}

static fsdp_status pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
    return FSDP_OK;
}

/* --- what is written --- */

/* The reader is late at each tensor, so that the optimizer writes most of them first. */
static fsdp_status be_late(void *arg)
{
    (void)arg;
    return pause_ms(2);
}

/* The reader waits until `arg` says so. */
static fsdp_status wait_for(void *arg)
{
    const atomic_bool *go = arg;
    while (!atomic_load(go))
        FSDP_TRY(pause_ms(1));
    return FSDP_OK;
}

static void assert_same_file(fsdp_test *t, const char *a, const char *b, const char *name)
{
    char path[2][PATH + 64];
    fsdp_mapping m[2];
    snprintf(path[0], sizeof path[0], "%s/%s", a, name);
    snprintf(path[1], sizeof path[1], "%s/%s", b, name);
    ASSERT_OK(fsdp_file_map(path[0], &m[0]));
    ASSERT_OK(fsdp_file_map(path[1], &m[1]));
    const bool same =
        m[0].bytes == m[1].bytes && (!m[0].bytes || memcmp(m[0].data, m[1].data, m[0].bytes) == 0);
    fsdp_file_unmap(&m[0]);
    fsdp_file_unmap(&m[1]);
    if (!same)
        FAIL("%s is not as a save at the call writes it", path[1]);
}

/* Check that two folders have the same names, and the same bytes in each file. */
static void assert_same_folder(fsdp_test *t, const char *a, const char *b)
{
    char **names[2];
    size_t n[2];
    ASSERT_OK(fsdp_directory_list(a, &names[0], &n[0]));
    ASSERT_OK(fsdp_directory_list(b, &names[1], &n[1]));
    ASSERT(n[0] == n[1] && n[0] > 1);
    for (size_t i = 0; i < n[0] && !t->failed; i++) {
        ASSERT_STR(names[1][i], names[0][i]);
        assert_same_file(t, a, b, names[0][i]);
    }
    fsdp_free(names[0]);
    fsdp_free(names[1]);
}

/* Save in both ways and continue training; `between` is called right after the call. */
static void check_case(fsdp_test *t, state_case *f, uint64_t staging_bytes,
                       void (*between)(state_case *f))
{
    atomic_bool go = false;
    const bool fits = staging_bytes == ROOMY;
    fsdp_async_save_options options = {.staging_bytes = staging_bytes,
                                       .before_read = fits ? wait_for : be_late,
                                       .before_read_arg = &go};
    char want[PATH] = "", got[PATH] = "";
    fsdp_state_dict *all;
    fsdp_async_save *save;
    path_of(t, "want", want);
    path_of(t, "got", got);
    CHECK_HERE();
    ASSERT_OK(state_case_train(f, 2));
    ASSERT_OK(state_case_get(f, NULL, &all));
    ASSERT_OK(fsdp_dcp_save(all, want, t->group, NULL));
    options.place.path = got;
    ASSERT_OK(fsdp_async_save_begin(FSDP_OK, all, t->group, &options, &save));
    fsdp_state_dict_destroy(all);
    if (between)
        between(f);
    CHECK_HERE();
    ASSERT_OK(state_case_train(f, 2));
    atomic_store(&go, true);
    ASSERT_OK(fsdp_async_save_wait(save));
    ASSERT(fsdp_async_save_done(save));
    ASSERT(!fits || fsdp_async_save_stats(save).copied_bytes > 0);
    ASSERT(staging_bytes != NONE || fsdp_async_save_stats(save).copied_bytes == 0);
    ASSERT_OK(fsdp_async_save_wait(save));
    fsdp_async_save_destroy(save);
    if (t->rank == 0) {
        assert_same_folder(t, want, got);
        ASSERT_OK(fsdp_tree_remove(want));
        ASSERT_OK(fsdp_tree_remove(got));
    }
    CHECK_HERE();
    ASSERT_OK(fsdp_barrier(t->group));
}

static void run_case(fsdp_test *t, state_case_optimizer kind, uint64_t staging_bytes,
                     const fsdp_fully_shard_options *options, void (*between)(state_case *f))
{
    state_case f;
    ASSERT_OK(state_case_open_with(&f, t->group, kind, 7, options));
    check_case(t, &f, staging_bytes, between);
    state_case_close(&f);
}

TEST_RANKS(values_of_the_call_are_copied_before_they_change, 2)
{
    run_case(t, STATE_CASE_ADAMW, ROOMY, NULL, NULL);
}

TEST_RANKS(a_full_pool_makes_the_optimizer_wait, 2)
{
    run_case(t, STATE_CASE_ADAMW, TIGHT, NULL, NULL);
}

TEST_RANKS(without_a_pool_the_optimizer_waits, 3)
{
    run_case(t, STATE_CASE_SGD, NONE, NULL, NULL);
}

TEST_RANKS(state_that_is_smaller_than_its_parameter_is_copied, 2)
{
    run_case(t, STATE_CASE_ADAFACTOR, ROOMY, NULL, NULL);
}

/* The float32 master weights are separate from the gathered copies, which are kept. */
TEST_RANKS(masters_beside_bf16_copies_are_copied, 2)
{
    const fsdp_fully_shard_options options = {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16},
                                              .reshard_after_forward = FSDP_RESHARD_FALSE};
    run_case(t, STATE_CASE_ADAMW, ROOMY, &options, NULL);
}

TEST_RANKS(of_replicas_the_first_saves, 4)
{
    fsdp_device_mesh *mesh;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, NULL, &mesh));
    const fsdp_fully_shard_options options = {.mesh = mesh};
    run_case(t, STATE_CASE_ADAMW, TIGHT, &options, NULL);
    fsdp_device_mesh_destroy(mesh);
}

TEST_RANKS(what_is_in_a_file_is_read_from_there, 2)
{
    char dir[PATH] = "";
    path_of(t, "stage", dir);
    CHECK_HERE();
    const fsdp_fully_shard_options options = {
        .offload_policy = {.kind = FSDP_OFFLOAD_DIR, .dir = dir}};
    run_case(t, STATE_CASE_ADAMW, ROOMY, &options, NULL);
    CHECK_HERE();
    run_case(t, STATE_CASE_ADAMW, NONE, &options, NULL);
}

/* Every second parameter is frozen and stored in bf16, as operations read it. */
static void freeze(fsdp_test *t, state_case *f)
{
    for (size_t i = 0; i < f->list.n; i += 2) {
        fsdp_parameter *p = f->list.items[i].parameter;
        fsdp_tensor *local = fsdp_parameter_local(p);
        fsdp_parameter_set_requires_grad(p, false);
        fsdp_param_group_note_load(local, FSDP_DTYPE_BF16);
        ASSERT_OK(fsdp_param_group_apply_load(local));
        ASSERT(fsdp_tensor_dtype(local) == FSDP_DTYPE_BF16);
        ASSERT_OK(fsdp_tensor_begin_write(local));
        fsdp_device_memset(fsdp_tensor_device(local), fsdp_tensor_ptr(local), 1 + (int)i,
                           (size_t)fsdp_tensor_numel(local) * 2);
        fsdp_tensor_end_write(local);
    }
}

static void unfreeze(state_case *f)
{
    for (size_t i = 0; i < f->list.n; i += 2)
        fsdp_parameter_set_requires_grad(f->list.items[i].parameter, true);
}

/* A unit's memory is allocated again where its parameters are unfrozen. */
TEST_RANKS(memory_that_goes_is_copied_first, 2)
{
    const fsdp_fully_shard_options options = {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16}};
    state_case f;
    ASSERT_OK(state_case_open_with(&f, t->group, STATE_CASE_ADAMW, 7, &options));
    freeze(t, &f);
    CHECK_HERE();
    check_case(t, &f, ROOMY, unfreeze);
    CHECK_HERE();
    state_case_close(&f);
}

/* --- failures --- */

/* A failure on one rank: the disk fails after its thread has read some tensors. */
typedef struct trouble {
    bool here;
    fsdp_io_call call;
    int error;
    int reads;
} trouble;

static fsdp_status make_trouble(void *arg)
{
    trouble *what = arg;
    if (what->here && ++what->reads == 3)
        fsdp_io_fail_at(what->call, 1, what->error);
    return FSDP_OK;
}

static size_t count_names(const char *dir)
{
    char **names;
    size_t n = 0;
    if (fsdp_directory_list(dir, &names, &n) == FSDP_OK)
        fsdp_free(names);
    return n;
}

static bool is_done_in_time(fsdp_async_save *save)
{
    for (int i = 0; i < 20000 && !fsdp_async_save_done(save); i++)
        if (pause_ms(1) != FSDP_OK)
            return false;
    return fsdp_async_save_done(save);
}

/* Begin a save, train, and fail: the error is on all ranks and names the rank; nothing is left
 * behind, and the next save works. `asking`: poll, and do not wait before the save has ended. */
static void check_failure(fsdp_test *t, int culprit, fsdp_io_call call, int error, const char *text,
                          bool asking)
{
    char folder[PATH] = "", path[PATH + 8], want[64];
    state_case f;
    fsdp_state_dict *all;
    fsdp_async_save *save;
    trouble what = {.here = t->rank == culprit, .call = call, .error = error};
    fsdp_async_save_options options = {
        .staging_bytes = TIGHT, .before_read = make_trouble, .before_read_arg = &what};
    path_of(t, "saves", folder);
    CHECK_HERE();
    snprintf(path, sizeof path, "%s/one", folder);
    snprintf(want, sizeof want, "__%d_0.distcp: %s", culprit, text);
    ASSERT_OK(state_case_open(&f, t->group, STATE_CASE_ADAMW, 7));
    ASSERT_OK(state_case_train(&f, 1));
    ASSERT_OK(state_case_get(&f, NULL, &all));
    options.place.path = path;
    ASSERT_OK(fsdp_async_save_begin(FSDP_OK, all, t->group, &options, &save));
    ASSERT_OK(state_case_train(&f, 1));
    ASSERT(!asking || is_done_in_time(save));
    ASSERT_ERROR(fsdp_async_save_wait(save), FSDP_ERR_IO, want);
    ASSERT(fsdp_async_save_wait(save) == FSDP_ERR_IO);
    fsdp_async_save_destroy(save);
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT_INT(count_names(folder), 0);
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT_OK(fsdp_dcp_async_save(all, path, t->group, NULL, &save));
    ASSERT_OK(state_case_train(&f, 1));
    ASSERT_OK(fsdp_async_save_wait(save));
    fsdp_async_save_destroy(save);
    ASSERT_INT(count_names(folder), 1);
    fsdp_state_dict_destroy(all);
    state_case_close(&f);
}

TEST_RANKS(a_full_disk_is_an_error_of_all_ranks, 2)
{
    check_failure(t, 1, FSDP_IO_WRITE, ENOSPC, "writing", false);
}

TEST_RANKS(a_failure_ends_the_save_of_all_ranks, 2)
{
    check_failure(t, 1, FSDP_IO_WRITE, ENOSPC, "writing", true);
}

TEST_RANKS(a_failed_sync_is_an_error_of_all_ranks, 2)
{
    check_failure(t, 0, FSDP_IO_SYNC, EIO, "cannot sync to the disk", false);
}

/* --- memory that runs out at the call --- */

typedef struct short_of_memory {
    const char *path;
    long n; /* which allocation of rank 1 within the call fails; 0: none */
    fsdp_status at_call[2];
} short_of_memory;

static fsdp_status put_rows(const fsdp_device_mesh *mesh, fsdp_device *device,
                            fsdp_state_dict *dict)
{
    static const float values[6] = {1, 2, 3, 4, 5, 6};
    static const char *const names[] = {"x", "y", "z"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fsdp_tensor *whole, *part = NULL;
        FSDP_TRY(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 1, (int64_t[]){6}, values,
                                       FSDP_TAG_DATA, &whole));
        fsdp_status status =
            fsdp_distribute_tensor(whole, mesh, (fsdp_placement[]){{FSDP_SHARD, 0}}, &part);
        if (status == FSDP_OK)
            status =
                fsdp_state_dict_put_tensor(dict, (fsdp_state_key[]){{.name = names[i]}}, 1, part);
        fsdp_tensor_release(part);
        fsdp_tensor_release(whole);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

static fsdp_status save_short_of_memory(fsdp_group *group, void *arg)
{
    short_of_memory *c = arg;
    const int rank = fsdp_group_rank(group);
    fsdp_device *device;
    fsdp_device_mesh *mesh;
    fsdp_state_dict *dict;
    fsdp_async_save *save = NULL;
    FSDP_TRY(fsdp_device_create(NULL, &device));
    FSDP_TRY(fsdp_device_mesh_create(group, 1, (int[]){2}, NULL, &mesh));
    FSDP_TRY(fsdp_state_dict_create(&dict));
    fsdp_status status = put_rows(mesh, device, dict);
    if (status == FSDP_OK) {
        fsdp_alloc_fail_at(rank == 1 ? c->n : 0);
        status = fsdp_dcp_async_save(dict, c->path, group, NULL, &save);
        fsdp_alloc_fail_at(0);
    }
    c->at_call[rank] = status;
    /* The dict may be destroyed while the save is running. It is the only owner of its tensors. */
    fsdp_state_dict_destroy(dict);
    if (status == FSDP_OK) {
        status = fsdp_async_save_wait(save);
        fsdp_async_save_destroy(save);
    }
    fsdp_device_mesh_destroy(mesh);
    fsdp_device_destroy(device);
    return status;
}

/* Any allocation may fail, also that of a thread when the other ranks' threads have begun: it is an
 * error on both ranks, at the call or later, and nothing is left behind. */
TEST(memory_that_runs_out_on_one_rank_is_an_error_of_all)
{
    char folder[PATH], path[PATH + 8];
    int later = 0;
    snprintf(folder, sizeof folder, "%s/saves", fsdp_test_dir(t));
    snprintf(path, sizeof path, "%s/one", folder);
    for (long n = 1; n < 1000; n++) {
        short_of_memory c = {.path = path, .n = n};
        fsdp_status status[2];
        if (fsdp_run_ranks(2, save_short_of_memory, &c, status) == FSDP_OK) {
            ASSERT(n > 20 && later > 0);
            ASSERT_INT(count_names(path), 1 + 2 * 2);
            return;
        }
        ASSERT_INT(status[1], FSDP_ERR_NOMEM);
        ASSERT(status[0] != FSDP_OK);
        ASSERT((c.at_call[0] == FSDP_OK) == (c.at_call[1] == FSDP_OK));
        later += c.at_call[1] == FSDP_OK;
        ASSERT_INT(count_names(folder), 0);
    }
    FAIL("it never succeeds");
}

/* --- several --- */

static fsdp_status be_late_and_count(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
    return pause_ms(2);
}

/* The second call returns once the values of the first save are read. */
TEST_RANKS(a_second_save_waits_for_the_first, 2)
{
    atomic_int reads = 0;
    fsdp_async_save_options slow = {
        .staging_bytes = ROOMY, .before_read = be_late_and_count, .before_read_arg = &reads};
    fsdp_async_save_options next = {.staging_bytes = ROOMY, .before_read = be_late};
    char first[PATH] = "", second[PATH] = "", want[PATH] = "";
    state_case f;
    fsdp_state_dict *all;
    fsdp_async_save *saves[2];
    path_of(t, "first", first);
    path_of(t, "second", second);
    path_of(t, "want", want);
    CHECK_HERE();
    ASSERT_OK(state_case_open(&f, t->group, STATE_CASE_ADAMW, 7));
    ASSERT_OK(state_case_train(&f, 1));
    ASSERT_OK(state_case_get(&f, NULL, &all));
    slow.place.path = first;
    ASSERT_OK(fsdp_async_save_begin(FSDP_OK, all, t->group, &slow, &saves[0]));
    ASSERT_OK(state_case_train(&f, 1));
    fsdp_state_dict_destroy(all);
    ASSERT_OK(state_case_get(&f, NULL, &all));
    next.place.path = second;
    ASSERT_OK(fsdp_async_save_begin(FSDP_OK, all, t->group, &next, &saves[1]));
    const int before = atomic_load(&reads);
    ASSERT_OK(fsdp_dcp_save(all, want, t->group, NULL));
    ASSERT_OK(state_case_train(&f, 1));
    ASSERT_OK(fsdp_async_save_wait(saves[1]));
    ASSERT_OK(fsdp_async_save_wait(saves[0]));
    ASSERT_INT(atomic_load(&reads), before);
    ASSERT(before > 0);
    if (t->rank == 0)
        assert_same_file(t, want, second, "__0_0.distcp");
    CHECK_HERE();
    for (int i = 0; i < 2; i++)
        fsdp_async_save_destroy(saves[i]);
    fsdp_state_dict_destroy(all);
    state_case_close(&f);
}

/* The reader waits until the save is abandoned. */
static fsdp_status wait_until_given_up(void *arg)
{
    fsdp_tensor *x = *(fsdp_tensor **)arg;
    FSDP_TRY(fsdp_tensor_begin_write(x));
    fsdp_tensor_end_write(x);
    return FSDP_OK;
}

/* No caller waits for the save: the tensors are free again, and nothing is left behind. */
TEST(a_save_can_be_given_up)
{
    char path[PATH] = "", folder[PATH] = "";
    fsdp_device *device;
    fsdp_tensor *x;
    fsdp_state_dict *dict;
    fsdp_async_save *save;
    fsdp_async_save_options options = {
        .staging_bytes = NONE, .before_read = wait_until_given_up, .before_read_arg = &x};
    path_of(t, "saves", folder);
    path_of(t, "saves/one", path);
    CHECK_HERE();
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(
        fsdp_tensor_create(device, FSDP_DTYPE_F32, 1, (int64_t[]){3000000}, FSDP_TAG_PARAM, &x));
    ASSERT_OK(fsdp_state_dict_create(&dict));
    ASSERT_OK(fsdp_state_dict_put_tensor(dict, (fsdp_state_key[]){{.name = "x"}}, 1, x));
    options.place.path = path;
    ASSERT_OK(fsdp_async_save_begin(FSDP_OK, dict, NULL, &options, &save));
    fsdp_async_save_destroy(save);
    ASSERT_OK(fsdp_tensor_begin_write(x));
    fsdp_tensor_end_write(x);
    ASSERT_INT(count_names(folder), 0);
    fsdp_state_dict_destroy(dict);
    fsdp_tensor_release(x);
    fsdp_device_destroy(device);
}

/* --- after a failure of something else --- */

/* Begin a save whose readers wait for `go`. */
static void begin_held(fsdp_test *t, state_case *f, const char *path, atomic_bool *go,
                       fsdp_async_save **save)
{
    fsdp_async_save_options held = {
        .staging_bytes = ROOMY, .before_read = wait_for, .before_read_arg = go};
    fsdp_state_dict *all;
    ASSERT_OK(state_case_open(f, t->group, STATE_CASE_ADAMW, 7));
    ASSERT_OK(state_case_train(f, 1));
    ASSERT_OK(state_case_get(f, NULL, &all));
    held.place.path = path;
    ASSERT_OK(fsdp_async_save_begin(FSDP_OK, all, t->group, &held, save));
    fsdp_state_dict_destroy(all);
}

static void *let_go(void *arg)
{
    (void)pause_ms(50);
    atomic_store((atomic_bool *)arg, true);
    return NULL;
}

/* Nothing is written yet when the ranks finish the save; each returns once the folder exists. */
TEST_RANKS(a_save_is_finished_without_a_word_to_the_peers, 3)
{
    atomic_bool go = false;
    pthread_t later;
    char path[PATH] = "";
    state_case f;
    fsdp_async_save *save;
    path_of(t, "saved", path);
    CHECK_HERE();
    begin_held(t, &f, path, &go, &save);
    CHECK_HERE();
    ASSERT(!fsdp_path_is_directory(path));
    ASSERT(pthread_create(&later, NULL, let_go, &go) == 0);
    ASSERT_OK(fsdp_async_save_finish(save));
    ASSERT_INT(count_names(path), 1 + 2 * 3); /* .metadata, data and checksums of each rank */
    pthread_join(later, NULL);
    fsdp_async_save_destroy(save);
    state_case_close(&f);
}

/* Rank 1 is reported dead before its file is written. */
TEST_RANKS(a_save_that_lacks_a_rank_is_given_up, 2)
{
    atomic_bool go = t->rank == 0;
    char folder[PATH] = "", begun[PATH] = "", path[PATH + 8];
    state_case f;
    fsdp_async_save *save;
    path_of(t, "saves", folder);
    path_of(t, "begun", begun);
    CHECK_HERE();
    snprintf(path, sizeof path, "%s/one", folder);
    begin_held(t, &f, path, &go, &save);
    CHECK_HERE();
    if (t->rank == 0) {
        ASSERT_OK(fsdp_directory_make(begun)); /* and no further call fails */
        ASSERT_ERROR(fsdp_async_save_finish(save), FSDP_ERR_STATE, "given up");
    } else {
        const fsdp_comm_failure died = {.rank = 1, .kind = FSDP_FAILURE_DIED};
        while (!fsdp_path_is_directory(begun))
            (void)pause_ms(1);
        ASSERT(fsdp_comm_control_abort(t->group->control, 1, &died));
        while (count_names(folder) > 0)
            (void)pause_ms(1);
        atomic_store(&go, true);
        ASSERT(fsdp_async_save_finish(save) != FSDP_OK);
    }
    fsdp_async_save_destroy(save);
    state_case_close(&f);
}
