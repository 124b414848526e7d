/* Measures the speed of saving and loading a checkpoint, and compares it with plain write() and
 * fsync(), or with plain read(), as in dd. These transfer the same number of bytes, in the same
 * number of processes, on the same disk. The measurements alternate, in a different order in each
 * round, and are compared within a round, because the disk of a virtual machine may be three times
 * as fast in one minute as in the next. The data that is read is not in the page cache of this
 * machine, but a virtual disk may have caches of its own.
 *
 *     fsdp launch -n 2 build/bench/checkpoint DIR [MIB] [ROUNDS] */
#include <errno.h>
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
    MAX_ROUNDS = 60,
    MAX_FIGURES = 3,
    BLOCK = 1 << 20, /* size of a plain write or read */
    PATH = 300
};

typedef struct bench {
    fsdp_group *group;
    fsdp_device *device;
    fsdp_state_dict *dict;
    char *block;         /* [BLOCK] */
    char plain[PATH];    /* this rank's file for plain writes */
    char saved[PATH];    /* the checkpoint */
    char own[PATH + 32]; /* this rank's file in the checkpoint */
    int64_t mib;
} bench;

/* Return the number of bytes that this rank writes or reads. */
static int64_t bytes_per_rank(const bench *b)
{
    return b->mib * (1 << 20) / fsdp_group_world_size(b->group) / BLOCK * BLOCK;
}

/* Add this rank's rows of tensor `i` to the state dict. Their elements have different values. */
static fsdp_status add_tensor(bench *b, int i)
{
    const int64_t own = bytes_per_rank(b) / TENSORS / WIDTH / (int64_t)sizeof(float);
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

/* ---- measured operations --------------------------------------------------------------------- */

/* Write this rank's share of the bytes to its own file, as dd bs=1M conv=fsync does. */
static fsdp_status write_plain(const bench *b)
{
    const int fd = open(b->plain, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool ok = fd >= 0;
    for (int64_t left = bytes_per_rank(b); ok && left > 0; left -= BLOCK)
        ok = write(fd, b->block, BLOCK) == BLOCK;
    ok = ok && fsync(fd) == 0;
    if (fd >= 0 && close(fd) != 0)
        ok = false;
    return ok ? FSDP_OK : fsdp_error(FSDP_ERR_IO, "%s: %s", b->plain, strerror(errno));
}

/* Read the file that load() reads, as dd bs=1M of=/dev/null does. */
static fsdp_status read_plain(const bench *b)
{
    ssize_t n = -1;
    const int fd = open(b->own, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && (n = read(fd, b->block, BLOCK)) > 0)
        ;
    if (n < 0)
        return fsdp_error(FSDP_ERR_IO, "%s: %s", b->own, strerror(errno));
    close(fd);
    return FSDP_OK;
}

static fsdp_status save(const bench *b)
{
    return fsdp_dcp_save(b->dict, b->saved, b->group, &(fsdp_dcp_save_options){.overwrite = true});
}

static fsdp_status save_async(const bench *b)
{
    const fsdp_dcp_async_save_options options = {.overwrite = true};
    fsdp_async_save *saving;
    FSDP_TRY(fsdp_dcp_async_save(b->dict, b->saved, b->group, &options, &saving));
    fsdp_status status = fsdp_async_save_wait(saving);
    fsdp_async_save_destroy(saving);
    return status;
}

static fsdp_status load(const bench *b)
{
    return fsdp_dcp_load(b->dict, b->saved, b->group, NULL);
}

typedef struct figure {
    const char *name;
    fsdp_status (*run)(const bench *b);
} figure;

/* The other operations of a list are compared with the first one. */
static const figure writes[] = {{"write", write_plain}, {"save", save}, {"async save", save_async}};
static const figure reads[] = {{"read", read_plain}, {"load", load}};

/* ---- rounds ---------------------------------------------------------------------------------- */

/* Before a write, remove the files that would be overwritten. Before a read, remove the file's
 * pages from the page cache. In both cases wait until the disk is idle, because it also has to free
 * blocks and write old pages. */
static fsdp_status prepare(const bench *b, bool is_read)
{
    if (!is_read) {
        (void)unlink(b->plain);
        if (fsdp_group_rank(b->group) == 0)
            FSDP_TRY(fsdp_tree_remove(b->saved));
    }
    FSDP_TRY(fsdp_barrier(b->group));
    sync();
    const int fd = is_read ? open(b->own, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    return fsdp_barrier(b->group);
}

static fsdp_status measure_one(const bench *b, const figure *f, bool is_read, double *rate)
{
    FSDP_TRY(prepare(b, is_read));
    const double begin = fsdp_clock_s();
    FSDP_TRY(f->run(b));
    FSDP_TRY(fsdp_barrier(b->group));
    *rate = (double)b->mib * 1.048576 / (fsdp_clock_s() - begin);
    return FSDP_OK;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Return the median of values [n], and sort them in place. */
static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

static void print_round(const figure *figures, int n, int round, double (*rate)[MAX_ROUNDS])
{
    for (int f = 0; f < n; f++)
        if (f == 0)
            printf("round %2d: %-10s %6.0f MB/s", round + 1, figures[0].name, rate[0][round]);
        else
            printf("; %s %6.0f, %3.0f %%", figures[f].name, rate[f][round],
                   100.0 * rate[f][round] / rate[0][round]);
    printf("\n");
    fflush(stdout);
}

static void print_medians(const figure *figures, int n, int rounds, double (*rate)[MAX_ROUNDS])
{
    for (int f = n - 1; f >= 0; f--) {
        double ratio[MAX_ROUNDS];
        for (int i = 0; i < rounds; i++)
            ratio[i] = 100.0 * rate[f][i] / rate[0][i];
        const double middle = median(ratio, rounds), of_rates = median(rate[f], rounds);
        printf("%-10s median %6.0f MB/s, %5.0f to %5.0f", figures[f].name, of_rates, rate[f][0],
               rate[f][rounds - 1]);
        if (f > 0)
            printf("; of the plain %s's: median %3.0f %%, %3.0f to %3.0f %%", figures[0].name,
                   middle, ratio[0], ratio[rounds - 1]);
        printf("\n");
    }
}

/* Measure each operation in each round. The order changes between rounds, because the speed of the
 * disk changes from one second to the next. Each operation is equally often the first, and follows
 * each of the others. */
static fsdp_status measure(const bench *b, const figure *figures, int n, int rounds)
{
    const bool is_read = figures == reads, prints = fsdp_group_rank(b->group) == 0;
    double rate[MAX_FIGURES][MAX_ROUNDS];
    for (int i = 0; i < rounds; i++) {
        for (int k = 0; k < n; k++) {
            const int f = (i % n + (i / n % 2 ? n - k : k)) % n;
            FSDP_TRY(measure_one(b, &figures[f], is_read, &rate[f][i]));
        }
        if (prints)
            print_round(figures, n, i, rate);
    }
    if (prints)
        print_medians(figures, n, rounds, rate);
    return FSDP_OK;
}

static fsdp_status measure_all(const bench *b, int rounds)
{
    FSDP_TRY(measure(b, writes, sizeof writes / sizeof *writes, rounds));
    (void)unlink(b->plain);
    FSDP_TRY(save(b));
    return measure(b, reads, sizeof reads / sizeof *reads, rounds);
}

/* ---- the program ----------------------------------------------------------------------------- */

static fsdp_status name_files(bench *b, const char *dir)
{
    const int rank = fsdp_group_rank(b->group);
    const int n = snprintf(b->saved, sizeof b->saved, "%s/saved", dir);
    if (n < 0 || (size_t)n + 32 > sizeof b->saved)
        return fsdp_error(FSDP_ERR_INVALID, "%s: a name too long", dir);
    snprintf(b->plain, sizeof b->plain, "%s/plain.%d", dir, rank);
    snprintf(b->own, sizeof b->own, "%s/__%d_0.distcp", b->saved, rank);
    return FSDP_OK;
}

static fsdp_status run(bench *b, const char *dir, int rounds)
{
    FSDP_TRY(fsdp_init_process_group(NULL, &b->group));
    FSDP_TRY(name_files(b, dir));
    FSDP_TRY(fsdp_device_create(NULL, &b->device));
    FSDP_TRY(fsdp_state_dict_create(&b->dict));
    b->block = malloc(BLOCK);
    if (!b->block)
        return fsdp_error(FSDP_ERR_NOMEM, "no memory for a block");
    for (int i = 0; i < BLOCK; i++)
        b->block[i] = (char)(i * 31);
    for (int i = 0; i < TENSORS; i++)
        FSDP_TRY(add_tensor(b, i));
    if (fsdp_group_rank(b->group) == 0)
        printf("%lld MiB by %d processes, %d rounds\n", (long long)b->mib,
               fsdp_group_world_size(b->group), rounds);
    return measure_all(b, rounds);
}

static void clean_up(bench *b)
{
    if (b->plain[0])
        (void)unlink(b->plain);
    if (b->saved[0] && fsdp_group_rank(b->group) == 0 && fsdp_tree_remove(b->saved) != FSDP_OK)
        fprintf(stderr, "%s\n", fsdp_last_error());
    free(b->block);
    fsdp_state_dict_destroy(b->dict);
    fsdp_device_destroy(b->device);
    fsdp_destroy_process_group(b->group);
}

int main(int argc, char **argv)
{
    bench b = {.mib = argc > 2 ? atoll(argv[2]) : 1024};
    const int rounds = argc > 3 ? atoi(argv[3]) : 12;
    if (argc < 2 || b.mib < 64 || rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr,
                "usage: fsdp launch -n 2 checkpoint DIR [MIB, at least 64] [ROUNDS, at most %d]\n",
                MAX_ROUNDS);
        return 2;
    }
    fsdp_status status = run(&b, argv[1], rounds);
    if (status != FSDP_OK)
        fprintf(stderr, "%s\n", fsdp_last_error());
    clean_up(&b);
    return status != FSDP_OK;
}
