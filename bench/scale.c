/* Measures what grows with the number of ranks, without computing: forming a job, barriers,
 * agreements and buffers of ranks that are threads, and what rank 0 does in a checkpoint of so many
 * ranks: the plan, and the index .metadata.
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
#include "src/base/io.h"
#include "src/comm/plan_group.h"
#include "src/dcp/dcp_metadata.h"
#include "src/dcp/dcp_writer.h"

enum {
    BARRIERS = 10
};

static double processor_s(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* Print a duration, and the processor time of all threads since the last report. */
static void report(const char *what, double seconds)
{
    static double before_s;
    const double now_s = processor_s();
    printf("%-48s %10.1f ms, processor %8.1f ms\n", what, seconds * 1e3, (now_s - before_s) * 1e3);
    before_s = now_s;
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

/* --- a checkpoint --- */

/* A tensor has ROWS rows of each rank. */
enum {
    ROWS = 4,
    WIDTH = 8
};

static bool part_of(const void *owner, const fsdp_group *group, int rank, int64_t *offsets,
                    int64_t *sizes)
{
    (void)owner;
    (void)group;
    offsets[0] = (int64_t)rank * ROWS;
    sizes[0] = ROWS;
    offsets[1] = 0;
    sizes[1] = WIDTH;
    return true;
}

static fsdp_status add_tensor(fsdp_dcp_manifest *manifest, int ranks, int i)
{
    static const float data[ROWS * WIDTH];
    const int64_t shape[] = {(int64_t)ranks * ROWS, WIDTH};
    char name[64];
    snprintf(name, sizeof name, "layers.%d.mlp.up_proj.weight", i);
    const fsdp_dcp_key keys[] = {{.name = "model"}, {.name = name}};
    return fsdp_dcp_manifest_tensor(manifest, keys, 2,
                                    &(fsdp_dcp_tensor){.dtype_name = "F32",
                                                       .shape = shape,
                                                       .ndim = 2,
                                                       .end = ROWS,
                                                       .part_of = part_of,
                                                       .data = data});
}

/* Do what rank 0 does in a save. The other ranks would write files of the same size. */
static fsdp_status save(const char *dir, fsdp_group *group, const fsdp_dcp_manifest *manifest)
{
    const fsdp_group_place place = {.path = dir};
    fsdp_dcp_job *job;
    size_t bytes;
    double start = fsdp_clock_s();
    FSDP_TRY(fsdp_dcp_job_create(FSDP_OK, &place, group, manifest, &job));
    report("plan which rank writes what", fsdp_clock_s() - start);
    fsdp_status status = fsdp_dcp_job_write_file(job);
    const void *own = fsdp_dcp_job_own_positions(job, &bytes);
    for (int r = 0; status == FSDP_OK && r < fsdp_group_world_size(group); r++)
        memcpy(fsdp_dcp_job_positions(job, r), own, bytes);
    start = fsdp_clock_s();
    if (status == FSDP_OK)
        status = fsdp_dcp_job_complete(job);
    report("write .metadata", fsdp_clock_s() - start);
    fsdp_dcp_job_destroy(job);
    return status;
}

static fsdp_status read_index(const char *dir)
{
    char path[400];
    char *text;
    size_t bytes;
    fsdp_dcp_metadata *read;
    snprintf(path, sizeof path, "%s/.metadata", dir);
    double start = fsdp_clock_s();
    FSDP_TRY(fsdp_file_read(path, SIZE_MAX, &text, &bytes));
    fsdp_status status = fsdp_dcp_metadata_create(path, text, bytes, &read);
    fsdp_free(text);
    FSDP_TRY(status);
    report("read it", fsdp_clock_s() - start);
    printf("%zu tensors, .metadata has %.1f MB\n", fsdp_dcp_metadata_count(read),
           (double)bytes * 1e-6);
    fsdp_dcp_metadata_destroy(read);
    return FSDP_OK;
}

static fsdp_status bench_checkpoint(int ranks, int tensors)
{
    char dir[] = "/tmp/fsdp-scale-XXXXXX";
    fsdp_group *group = NULL;
    fsdp_dcp_manifest *manifest = NULL;
    if (!mkdtemp(dir))
        return fsdp_error(FSDP_ERR_IO, "%s: cannot make a folder", dir);
    fsdp_status status = fsdp_plan_group_create(0, ranks, ranks, &group);
    if (status == FSDP_OK)
        status = fsdp_dcp_manifest_create(&manifest);
    for (int i = 0; i < tensors && status == FSDP_OK; i++)
        status = add_tensor(manifest, ranks, i);
    if (status == FSDP_OK)
        status = save(dir, group, manifest);
    if (status == FSDP_OK)
        status = read_index(dir);
    fsdp_dcp_manifest_destroy(manifest);
    fsdp_destroy_process_group(group);
    const fsdp_status removed = fsdp_tree_remove(dir);
    return status == FSDP_OK ? removed : status;
}

int main(int argc, char **argv)
{
    const int ranks = argc > 1 ? atoi(argv[1]) : 512, tensors = argc > 2 ? atoi(argv[2]) : 291;
    printf("%d ranks\n", ranks);
    started_s = fsdp_clock_s();
    fsdp_status status = ranks < 1 || tensors < 1
                             ? fsdp_error(FSDP_ERR_INVALID, "usage: scale [ranks [tensors]]")
                             : fsdp_run_ranks(ranks, run_rank, NULL, NULL);
    const double job_s = processor_s();
    if (status == FSDP_OK)
        status = bench_checkpoint(ranks, tensors);
    if (status != FSDP_OK) {
        fprintf(stderr, "scale: %s\n", fsdp_last_error());
        return 1;
    }
    printf("processor time: %.2f s for the job, %.2f s for the checkpoint\n", job_s,
           processor_s() - job_s);
    return 0;
}
