/* How fast a checkpoint is saved and loaded, beside dd on the same disk: in turn, several times,
 * and the medians. What is read is not in memory any more. fsdp launch -n 2 build/bench/checkpoint
 * DIR [MIB] [ROUNDS] */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fsdp/dtensor.h>
#include <fsdp/state_dict.h>

#include "src/base/clock.h"
#include "src/base/io.h"

enum {
    TENSORS = 64,
    WIDTH = 1024,
    MAX_ROUNDS = 20,
    PATH = 300
};

typedef struct bench {
    fsdp_group *group;
    fsdp_device *device;
    fsdp_state_dict *dict;
    char dd[PATH], saved[PATH];
    int64_t mib;
} bench;

typedef enum figure {
    DD_WRITE,
    SAVE,
    ASYNC_SAVE,
    DD_READ,
    LOAD,
    FIGURES
} figure;

static const char *const names[FIGURES] = {"dd conv=fsync", "fsdp_dcp_save", "fsdp_dcp_async_save",
                                           "dd of what was written", "fsdp_dcp_load"};

/* Rows of this rank, with values that differ. */
static fsdp_status put_tensor(bench *b, int i)
{
    const int64_t rows = b->mib * (1 << 20) / TENSORS / WIDTH / (int64_t)sizeof(float);
    const int64_t own = rows / fsdp_group_world_size(b->group);
    const int64_t whole[] = {own * fsdp_group_world_size(b->group), WIDTH}, part[] = {own, WIDTH};
    char name[16];
    fsdp_tensor *x;
    snprintf(name, sizeof name, "weight.%d", i);
    FSDP_TRY(fsdp_tensor_create(b->device, FSDP_DTYPE_F32, 2, part, FSDP_TAG_PARAM, &x));
    float *data = fsdp_tensor_data(x);
    for (int64_t k = 0; k < own * WIDTH; k++)
        data[k] = (float)(k * 31 + i);
    fsdp_status status =
        fsdp_dtensor_from_local(x, b->group, (fsdp_placement){FSDP_SHARD, 0}, whole);
    if (status == FSDP_OK)
        status = fsdp_state_dict_put_tensor(b->dict, (fsdp_state_key[]){{.name = name}}, 1, x);
    fsdp_tensor_release(x);
    return status;
}

/* Out of the page cache. */
static void forget(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)fdatasync(fd);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static fsdp_status run_dd(const bench *b, figure f)
{
    char command[2 * PATH];
    if (fsdp_group_rank(b->group) > 0)
        return FSDP_OK;
    if (f == DD_READ) {
        forget(b->dd);
        snprintf(command, sizeof command, "dd if='%s' of=/dev/null bs=1M 2>/dev/null", b->dd);
    } else {
        (void)unlink(b->dd);
        snprintf(command, sizeof command,
                 "dd if=/dev/zero of='%s' bs=1M count=%lld conv=fsync 2>/dev/null", b->dd,
                 (long long)b->mib);
    }
    return system(command) == 0 ? FSDP_OK : fsdp_error(FSDP_ERR_IO, "%s: failed", command);
}

static fsdp_status save_beside(const bench *b)
{
    const fsdp_dcp_async_save_options options = {.overwrite = true};
    fsdp_async_save *save;
    FSDP_TRY(fsdp_dcp_async_save(b->dict, b->saved, b->group, &options, &save));
    fsdp_status status = fsdp_async_save_wait(save);
    fsdp_async_save_destroy(save);
    return status;
}

static fsdp_status run_figure(const bench *b, figure f)
{
    switch (f) {
    case SAVE:
        return fsdp_dcp_save(b->dict, b->saved, b->group,
                             &(fsdp_dcp_save_options){.overwrite = true});
    case ASYNC_SAVE:
        return save_beside(b);
    case LOAD:
        return fsdp_dcp_load(b->dict, b->saved, b->group, NULL);
    default:
        return run_dd(b, f);
    }
}

/* What the timed part is not to find. */
static void prepare(const bench *b, figure f)
{
    char path[PATH + 32];
    if (f == LOAD) {
        snprintf(path, sizeof path, "%s/__%d_0.distcp", b->saved, fsdp_group_rank(b->group));
        forget(path);
    } else if (f != DD_READ && fsdp_group_rank(b->group) == 0 &&
               fsdp_tree_remove(b->saved) != FSDP_OK) {
        /* overwritten then */
    }
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static fsdp_status measure(const bench *b, int rounds)
{
    double rate[FIGURES][MAX_ROUNDS], median[FIGURES];
    for (int i = 0; i < rounds; i++)
        for (int f = 0; f < FIGURES; f++) {
            prepare(b, (figure)f);
            FSDP_TRY(fsdp_barrier(b->group));
            const double begin = fsdp_clock_s();
            FSDP_TRY(run_figure(b, (figure)f));
            FSDP_TRY(fsdp_barrier(b->group));
            rate[f][i] = (double)b->mib * 1.048576 / (fsdp_clock_s() - begin);
        }
    for (int f = 0; f < FIGURES; f++) {
        qsort(rate[f], (size_t)rounds, sizeof(double), compare);
        median[f] = rate[f][rounds / 2];
        if (fsdp_group_rank(b->group) == 0)
            printf("%-24s %7.0f MB/s, %6.0f to %6.0f; %3.0f %% of dd\n", names[f], median[f],
                   rate[f][0], rate[f][rounds - 1],
                   100.0 * median[f] / median[f < DD_READ ? DD_WRITE : DD_READ]);
    }
    return FSDP_OK;
}

static fsdp_status run(bench *b, int rounds)
{
    FSDP_TRY(fsdp_init_process_group(NULL, &b->group));
    FSDP_TRY(fsdp_device_create(NULL, &b->device));
    FSDP_TRY(fsdp_state_dict_create(&b->dict));
    for (int i = 0; i < TENSORS; i++)
        FSDP_TRY(put_tensor(b, i));
    return measure(b, rounds);
}

int main(int argc, char **argv)
{
    bench b = {.mib = argc > 2 ? atoll(argv[2]) : 4096};
    const int rounds = argc > 3 ? atoi(argv[3]) : 3;
    if (argc < 2 || b.mib < 64 || rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: fsdp launch -n 2 checkpoint DIR [MIB, at least 64] [ROUNDS]\n");
        return 2;
    }
    snprintf(b.dd, sizeof b.dd, "%s/dd", argv[1]);
    snprintf(b.saved, sizeof b.saved, "%s/saved", argv[1]);
    fsdp_status status = run(&b, rounds);
    if (status != FSDP_OK)
        fprintf(stderr, "%s\n", fsdp_last_error());
    if (fsdp_group_rank(b.group) == 0) {
        (void)unlink(b.dd);
        if (fsdp_tree_remove(b.saved) != FSDP_OK)
            fprintf(stderr, "%s\n", fsdp_last_error());
    }
    fsdp_state_dict_destroy(b.dict);
    fsdp_device_destroy(b.device);
    fsdp_destroy_process_group(b.group);
    return status != FSDP_OK;
}
