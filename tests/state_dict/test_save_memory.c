/* The memory that saving and loading need is never the size of the model or its optimizer's state.
 * It is measured by the allocator's own figures, and by a limit on the memory of the process, which
 * includes host memory. */
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fsdp/ckpt.h>
#include <fsdp/optim.h>
#include <fsdp/state_dict.h>

#include "src/base/alloc.h"
#include "src/optim/optimizer.h"
#include "tests/fsdp/toy.h"
#include "tests/test.h"

enum {
    RANKS = 2,
    PATH = 300,
    MIB = 1 << 20,
    UNIT = 4 * MIB,    /* a block's parameters, two tensors */
    MODEL = 8 * UNIT,  /* three times that with AdamW's moments */
    STAGING = 2 * MIB, /* bytes per rank for tensors that are overwritten during the save */
    PIECE =
        4 * MIB, /* size in which files are written, and in which they are read for conversion */
    STACK = 8 * MIB + MIB /* stack of a thread that writes, and its part of the heap */
};
static const toy_shape shape = {.vocab = 16, .width = 256, .hidden = 2048, .blocks = 8};

typedef struct subject {
    fsdp_group *group;
    fsdp_device *device;
    fsdp_module *model;
    fsdp_optimizer *optimizer;
    fsdp_state_dict *all; /* {"model", "optim"} */
    const char *dir;
} subject;

static fsdp_status take_state(subject *s)
{
    fsdp_state_dict *model = NULL, *optim = NULL;
    FSDP_TRY(fsdp_optimizer_init_state(s->optimizer));
    FSDP_TRY(fsdp_get_state_dict(s->model, s->optimizer, NULL, &model, &optim));
    fsdp_status status = fsdp_state_dict_create(&s->all);
    if (status == FSDP_OK)
        status = fsdp_state_dict_add(s->all, "model", model);
    if (status == FSDP_OK)
        status = fsdp_state_dict_add(s->all, "optim", optim);
    fsdp_state_dict_destroy(model);
    fsdp_state_dict_destroy(optim);
    return status;
}

static fsdp_status open_subject(fsdp_group *group, subject *s)
{
    s->group = group;
    FSDP_TRY(fsdp_device_create(NULL, &s->device));
    FSDP_TRY(toy_create(&shape, &s->model));
    FSDP_TRY(toy_shard(s->model, group, s->device, NULL));
    FSDP_TRY(fsdp_module_init(s->model, 1));
    FSDP_TRY(fsdp_adamw_create(s->model, NULL, &s->optimizer));
    return take_state(s);
}

static void close_subject(subject *s)
{
    fsdp_state_dict_destroy(s->all);
    fsdp_optimizer_destroy(s->optimizer);
    fsdp_module_destroy(s->model);
    fsdp_device_destroy(s->device);
}

/* --- ways --- */

static void path_in(const subject *s, const char *name, char path[PATH + 32])
{
    snprintf(path, PATH + 32, "%s/%s", s->dir, name);
}

static fsdp_status save_dcp(subject *s)
{
    char path[PATH + 32];
    path_in(s, "dcp", path);
    return fsdp_dcp_save(s->all, path, s->group, &(fsdp_dcp_save_options){.overwrite = true});
}

static fsdp_status load_dcp(subject *s)
{
    char path[PATH + 32];
    path_in(s, "dcp", path);
    return fsdp_dcp_load(s->all, path, s->group, NULL);
}

static fsdp_status save_torch(subject *s)
{
    char path[PATH + 32];
    path_in(s, "all.pt", path);
    return fsdp_torch_save(s->all, path, s->group);
}

static fsdp_status load_torch(subject *s)
{
    char path[PATH + 32];
    path_in(s, "all.pt", path);
    return fsdp_torch_load_into(s->all, path, s->group);
}

static fsdp_status save_local(subject *s)
{
    char path[PATH + 32];
    path_in(s, "local", path);
    return fsdp_local_save(s->all, path, s->group);
}

static fsdp_status load_local(subject *s)
{
    char path[PATH + 32];
    path_in(s, "local", path);
    return fsdp_local_load(s->all, path, s->group);
}

static fsdp_status save_safetensors(subject *s)
{
    return fsdp_module_save(s->model, s->dir, s->group, NULL);
}

static fsdp_status load_safetensors(subject *s)
{
    char path[PATH + 32];
    fsdp_checkpoint_reader *reader;
    path_in(s, "model.safetensors", path);
    FSDP_TRY(fsdp_checkpoint_open(path, &reader));
    fsdp_status status = fsdp_module_load(s->model, reader, s->group, NULL, NULL);
    fsdp_checkpoint_close(reader);
    return status;
}

/* All tensors are overwritten before the thread has read them. */
static fsdp_status save_beside(subject *s)
{
    char path[PATH + 32];
    fsdp_async_save *save;
    path_in(s, "dcp", path);
    const fsdp_dcp_async_save_options options = {.overwrite = true, .staging_bytes = STAGING};
    FSDP_TRY(fsdp_dcp_async_save(s->all, path, s->group, &options, &save));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < fsdp_state_dict_count(s->all) && status == FSDP_OK; i++) {
        fsdp_tensor *tensor = fsdp_state_dict_at(s->all, i)->tensor;
        if (tensor && (status = fsdp_tensor_begin_write(tensor)) == FSDP_OK)
            fsdp_tensor_end_write(tensor);
    }
    if (status == FSDP_OK)
        status = fsdp_async_save_wait(save);
    fsdp_async_save_destroy(save);
    return status;
}

/* Additional memory that a rank may use: from the device's allocator, and in total. */
static const struct way {
    const char *name;
    fsdp_status (*run)(subject *s);
    int64_t device, all;
} ways[] = {{"a save of torch.distributed.checkpoint", save_dcp, 0, PIECE},
            {"its load", load_dcp, 0, PIECE},
            {"a save of it beside training", save_beside, STAGING, PIECE + STAGING + STACK},
            {"a whole save into a file of torch.save", save_torch, UNIT, UNIT},
            {"its load", load_torch, UNIT, UNIT},
            {"a local save", save_local, 0, 0},
            {"its load", load_local, 0, 0},
            {"a save of safetensors", save_safetensors, UNIT, UNIT},
            {"its load", load_safetensors, UNIT, UNIT}};

enum {
    WAYS = sizeof ways / sizeof *ways,
    SMALL = MIB /* names, manifests, file buffers */
};

/* --- the allocator's figures --- */

static void check_device(fsdp_test *t, subject *s, const struct way *way)
{
    fsdp_memory_stats before, after;
    fsdp_device_reset_peak_memory(s->device);
    fsdp_device_memory(s->device, &before);
    ASSERT_OK(way->run(s));
    fsdp_device_memory(s->device, &after);
    const int64_t more = after.allocated_peak - before.allocated;
    if (more > way->device)
        FAIL("%s took %lld bytes of the device, not %lld", way->name, (long long)more,
             (long long)way->device);
    ASSERT_INT(after.allocated, before.allocated);
}

TEST_RANKS(no_save_and_no_load_holds_more_than_a_unit_on_the_device, RANKS)
{
    char dir[PATH] = "";
    subject s = {.dir = dir};
    if (t->rank == 0)
        snprintf(dir, sizeof dir, "%s", fsdp_test_dir(t));
    ASSERT_OK(fsdp_broadcast(t->group, dir, sizeof dir, 0));
    ASSERT_OK(open_subject(t->group, &s));
    for (int i = 0; i < WAYS; i++) {
        check_device(t, &s, &ways[i]);
        CHECK_HERE();
    }
    close_subject(&s);
}

/* --- the system's --- */

/* Private writable memory of this process in bytes, which RLIMIT_DATA limits. */
static int64_t data_bytes(void)
{
    char line[256];
    long long kib = -1;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && kib < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, "VmData:", 7) == 0)
            sscanf(line + 7, "%lld", &kib);
    if (file)
        fclose(file);
    return kib < 0 ? -1 : kib * 1024;
}

/* Limit further memory to `bytes`; negative: no limit. */
static fsdp_status limit_to(const fsdp_group *group, int64_t bytes)
{
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    if (bytes >= 0)
        limit.rlim_cur = (rlim_t)(data_bytes() + bytes);
    if (fsdp_group_rank(group) == 0 && setrlimit(RLIMIT_DATA, &limit) != 0)
        return fsdp_error(FSDP_ERR_STATE, "no limit can be set");
    return FSDP_OK;
}

static fsdp_status run_within(fsdp_group *group, subject *s, const struct way *way)
{
    FSDP_TRY(fsdp_barrier(group));
    FSDP_TRY(limit_to(group, RANKS * (way->all + SMALL)));
    FSDP_TRY(fsdp_barrier(group));
    fsdp_status status = way->run(s);
    fsdp_error_context(status, "%s", way->name);
    FSDP_TRY(status);
    FSDP_TRY(fsdp_barrier(group));
    return limit_to(group, -1);
}

static fsdp_status run_all(fsdp_group *group, void *arg)
{
    subject s = {.dir = arg};
    FSDP_TRY(open_subject(group, &s));
    for (int i = 0; i < WAYS; i++)
        FSDP_TRY(run_within(group, &s, &ways[i]));
    close_subject(&s);
    return FSDP_OK;
}

/* Exits with 0 if all of these fit into the limit, and a model does not. */
static void run_limited(const char *dir)
{
    char copy[PATH];
    mallopt(M_MMAP_THRESHOLD, 1 << 16); /* freed memory is returned to the system at once */
    snprintf(copy, sizeof copy, "%s", dir);
    if (fsdp_run_ranks(RANKS, run_all, copy, NULL) != FSDP_OK) {
        fprintf(stderr, "%s\n", fsdp_last_error());
        _exit(1);
    }
    if (limit_to(NULL, RANKS * (PIECE + SMALL)) != FSDP_OK)
        _exit(2);
    _exit(fsdp_calloc(MODEL, 1) ? 3 : 0);
}

TEST(no_save_and_no_load_holds_more_than_a_unit_and_a_piece_of_memory)
{
    if (UNDER_SANITIZER)
        SKIP("a sanitizer keeps what was freed");
    pid_t child = fork();
    if (child == 0)
        run_limited(fsdp_test_dir(t));
    int status = -1;
    ASSERT(waitpid(child, &status, 0) == child);
    ASSERT(WIFEXITED(status));
    ASSERT_INT(WEXITSTATUS(status), 0);
}
