/* Measures what grows with the number of ranks, without computing: forming a job, barriers,
 * agreements and buffers of ranks that are threads, and the index of a checkpoint of so many ranks.
 *
 *     scale [ranks [tensors]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"
#include "src/dcp/dcp_metadata_writer.h"

enum {
    BARRIERS = 10
};

static void report(const char *what, double seconds)
{
    printf("%-56s %9.1f ms\n", what, seconds * 1e3);
    fflush(stdout);
}

/* --- the job --- */

static double started_s;

static fsdp_status run_rank(fsdp_group *group, void *arg)
{
    const bool first = fsdp_group_rank(group) == 0;
    fsdp_shared_buffer *buffer;
    (void)arg;
    FSDP_TRY(fsdp_barrier(group));
    if (first)
        report("form the job: threads, and a first barrier", fsdp_clock_s() - started_s);
    double start = fsdp_clock_s();
    for (int i = 0; i < BARRIERS; i++)
        FSDP_TRY(fsdp_barrier(group));
    if (first)
        report("a barrier", (fsdp_clock_s() - start) / BARRIERS);
    start = fsdp_clock_s();
    for (int i = 0; i < BARRIERS; i++)
        FSDP_TRY(fsdp_agree(group, FSDP_OK));
    if (first)
        report("an agreement", (fsdp_clock_s() - start) / BARRIERS);
    start = fsdp_clock_s();
    FSDP_TRY(fsdp_shared_buffer_create(group, 4096, &buffer));
    if (first)
        report("a shared buffer", fsdp_clock_s() - start);
    fsdp_shared_buffer_destroy(buffer);
    return fsdp_barrier(group);
}

/* --- the index of a checkpoint --- */

typedef struct index_case {
    fsdp_dcp_item *items;
    fsdp_dcp_chunk *chunks;
    int64_t *numbers; /* offsets and sizes */
    char *names;
    int ranks, tensors;
} index_case;

enum {
    NAME = 64
};

static void fill_items(index_case *c)
{
    const int64_t rows = 4;
    for (int i = 0; i < c->tensors; i++) {
        char *name = c->names + (size_t)(c->ranks + i) * NAME;
        int64_t *shape = c->numbers + (size_t)i * 2;
        snprintf(name, NAME, "model.layers.%d.mlp.weight", i);
        shape[0] = rows * c->ranks;
        shape[1] = 128;
        c->items[i] = (fsdp_dcp_item){.fqn = name,
                                      .dtype_name = "F32",
                                      .shape = shape,
                                      .ndim = 2,
                                      .chunks = c->chunks + (size_t)i * (size_t)c->ranks,
                                      .n_chunks = (size_t)c->ranks};
        for (int r = 0; r < c->ranks; r++) {
            int64_t *box = c->numbers + 2 * (size_t)c->tensors +
                           ((size_t)i * (size_t)c->ranks + (size_t)r) * 4;
            memcpy(box, (const int64_t[]){rows * r, 0, rows, 128}, 4 * sizeof *box);
            c->items[i].chunks[r] = (fsdp_dcp_chunk){.offsets = box,
                                                     .sizes = box + 2,
                                                     .file = c->names + (size_t)r * NAME,
                                                     .offset = (uint64_t)i * 4096,
                                                     .length = 4096};
        }
    }
}

static fsdp_status measure_index(const index_case *c)
{
    char what[80];
    size_t bytes;
    fsdp_dcp_metadata *read;
    double start = fsdp_clock_s();
    char *text = fsdp_dcp_metadata_pickle(c->items, (size_t)c->tensors, NULL, &bytes);
    if (!text)
        return FSDP_ERR_NOMEM;
    snprintf(what, sizeof what, "write .metadata of %d tensors, %.1f MB", c->tensors,
             (double)bytes * 1e-6);
    report(what, fsdp_clock_s() - start);
    start = fsdp_clock_s();
    fsdp_status status = fsdp_dcp_metadata_create(".metadata", text, bytes, &read);
    fsdp_free(text);
    FSDP_TRY(status);
    report("read it", fsdp_clock_s() - start);
    fsdp_dcp_metadata_destroy(read);
    return FSDP_OK;
}

static fsdp_status bench_index(int ranks, int tensors)
{
    const size_t chunks = (size_t)ranks * (size_t)tensors;
    index_case c = {.items = fsdp_calloc((size_t)tensors, sizeof *c.items),
                    .chunks = fsdp_calloc(chunks, sizeof *c.chunks),
                    .numbers = fsdp_calloc(2 * (size_t)tensors + 4 * chunks, sizeof *c.numbers),
                    .names = fsdp_calloc((size_t)(ranks + tensors), NAME),
                    .ranks = ranks,
                    .tensors = tensors};
    fsdp_status status = FSDP_ERR_NOMEM;
    if (c.items && c.chunks && c.numbers && c.names) {
        for (int r = 0; r < ranks; r++)
            snprintf(c.names + (size_t)r * NAME, NAME, "__%d_0.distcp", r);
        fill_items(&c);
        status = measure_index(&c);
    }
    fsdp_free(c.items);
    fsdp_free(c.chunks);
    fsdp_free(c.numbers);
    fsdp_free(c.names);
    return status;
}

int main(int argc, char **argv)
{
    const int ranks = argc > 1 ? atoi(argv[1]) : 512, tensors = argc > 2 ? atoi(argv[2]) : 291;
    struct rusage used;
    printf("%d ranks\n", ranks);
    started_s = fsdp_clock_s();
    fsdp_status status = ranks < 1 || tensors < 1
                             ? fsdp_error(FSDP_ERR_INVALID, "usage: scale [ranks [tensors]]")
                             : fsdp_run_ranks(ranks, run_rank, NULL, NULL);
    if (status == FSDP_OK)
        status = bench_index(ranks, tensors);
    if (status != FSDP_OK) {
        fprintf(stderr, "scale: %s\n", fsdp_last_error());
        return 1;
    }
    getrusage(RUSAGE_SELF, &used);
    printf("processor time %.1f s, memory at most %ld MiB\n",
           (double)used.ru_utime.tv_sec + (double)used.ru_stime.tv_sec, used.ru_maxrss / 1024);
    return 0;
}
