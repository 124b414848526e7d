/* The memory of all ranks together, as processes, counted by the kernel (sum of PSS). float32
 * masters are stored once, and gathering them adds nothing. Pages of files are not counted, because
 * a rank's share of a library depends on the other processes on the machine. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "src/fsdp/state.h"
#include "tests/comm/processes.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

#if defined(__SANITIZE_ADDRESS__) || UNDER_TSAN
#define SANITIZED 1
#elif defined(__has_feature)
#define SANITIZED __has_feature(address_sanitizer)
#else
#define SANITIZED 0
#endif

enum {
    WIDTH = 512,
    BLOCKS = 4,
    NUMEL = BLOCKS * (WIDTH + 2 * WIDTH * WIDTH), /* 8 MiB in float32 */
    SLACK = NUMEL / 2,                            /* bytes: an eighth of that */
    START_SLACK = 2 * NUMEL /* other memory of running processes; a second copy would take 4 */
};

typedef struct job {
    fsdp_fully_shard_options options;
    bool frozen;
    /* Bytes of all processes. Rank 0 writes them, in memory that all share. */
    int64_t before, sharded, unsharded;
    double sum;
} job;

static fsdp_status open_blocks(fsdp_group *group, const job *j, trainee *m)
{
    FSDP_TRY(trainee_open(group, "cpu", j->options.mp_policy.param_dtype, m));
    FSDP_TRY(tree_add(NULL, "", WIDTH, 0, &m->model));
    for (int i = 0; i < BLOCKS; i++) {
        fsdp_module *block;
        FSDP_TRY(tree_add(m->model, (char[]){(char)('a' + i), 0}, WIDTH, WIDTH, &block));
        fsdp_parameter *const all[] = {tree_of(block)->norm, tree_of(block)->up,
                                       tree_of(block)->down};
        for (int k = 0; k < 3; k++)
            fsdp_parameter_set_requires_grad(all[k], !j->frozen);
        FSDP_TRY(fsdp_fully_shard(block, group, m->device, &j->options));
    }
    FSDP_TRY(fsdp_fully_shard(m->model, group, m->device, &j->options));
    return fsdp_module_init(m->model, 5);
}

/* The PSS of this process without pages of files; -1: this kernel does not report it. */
static int64_t own_pss(void)
{
    static const char *const names[] = {"\nPss_Anon:", "\nPss_Shmem:"};
    char text[4096];
    int64_t bytes = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    const size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[n] = 0;
    for (int i = 0; i < 2; i++) {
        const char *line = strstr(text, names[i]);
        if (!line)
            return -1;
        bytes += strtoll(line + strlen(names[i]), NULL, 10) * 1024;
    }
    return bytes;
}

/* Sum the memory of all ranks, while all of them only wait for this. */
static fsdp_status measure(fsdp_group *group, int64_t *bytes)
{
    FSDP_TRY(fsdp_barrier(group));
    *bytes = own_pss();
    FSDP_TRY(fsdp_barrier(group));
    return fsdp_all_reduce(group, bytes, 1, FSDP_DTYPE_I64, FSDP_REDUCE_SUM);
}

/* Every rank gathers and reads all parameters. */
static fsdp_status unshard_and_read(const trainee *m, double *sum)
{
    for (int i = 0; i < BLOCKS; i++) {
        fsdp_module *block = fsdp_module_child(m->model, i);
        FSDP_TRY(fsdp_unit_unshard(block));
        const fsdp_tensor *const all[] = {fsdp_parameter_data(tree_of(block)->up),
                                          fsdp_parameter_data(tree_of(block)->down)};
        for (int k = 0; k < 2; k++) {
            const unsigned char *at = fsdp_tensor_data(all[k]);
            const size_t bytes = (size_t)fsdp_tensor_numel(all[k]) * fsdp_dtype_size(all[k]->dtype);
            for (size_t b = 0; b < bytes; b += 64)
                *sum += at[b];
        }
    }
    return FSDP_OK;
}

static fsdp_status hold(fsdp_group *group, void *arg)
{
    job *j = arg, own = *j;
    trainee m;
    FSDP_TRY(measure(group, &own.before));
    FSDP_TRY(open_blocks(group, j, &m));
    FSDP_TRY(measure(group, &own.sharded));
    FSDP_TRY(unshard_and_read(&m, &own.sum));
    FSDP_TRY(measure(group, &own.unsharded));
    for (int i = 0; i < BLOCKS; i++)
        FSDP_TRY(fsdp_unit_reshard(fsdp_module_child(m.model, i)));
    if (fsdp_group_rank(group) == 0)
        *j = own;
    return trainee_close(&m);
}

/* Measure the bytes, over all ranks, that creating the model and gathering it add. */
static void run(fsdp_test *t, int world_size, const fsdp_fully_shard_options *o, bool frozen,
                int64_t *stored, int64_t *gathered)
{
    process_result results[MAX_PROCESSES];
    fsdp_rendezvous_report report;
    job *j = mmap(NULL, sizeof *j, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT(j != MAP_FAILED);
    *j = (job){.options = *o, .frozen = frozen};
    ASSERT_OK(run_processes(world_size, hold, j, results, &report));
    for (int r = 0; r < world_size; r++)
        if (results[r].status != FSDP_OK || results[r].signal)
            FAIL("rank %d: signal %d, %s", r, results[r].signal, results[r].message);
    ASSERT(j->before > 0 && j->sum > 0.0);
    *stored = j->sharded - j->before;
    *gathered = j->unsharded - j->sharded;
    munmap(j, sizeof *j);
}

#define NEEDS_PSS()                                                                                \
    do {                                                                                           \
        if (SANITIZED)                                                                             \
            SKIP("a sanitizer's memory is beside the program's");                                  \
        if (own_pss() < 0)                                                                         \
            SKIP("/proc/self/smaps_rollup does not report PSS by kind");                           \
    } while (0)

/* bfloat16 adds nothing either. float16 adds one copy for all ranks, which shows that the
 * measurement works. */
TEST(gathering_adds_nothing_to_what_processes_hold)
{
    NEEDS_PSS();
    for (int world_size = 2; world_size <= 4; world_size += 2) {
        int64_t stored, gathered;
        for (int halved = 0; halved < 2; halved++) {
            const fsdp_fully_shard_options o = {
                .mp_policy = {.param_dtype = halved ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32}};
            const int masters = 4 * NUMEL + (halved ? NUMEL / 8 : 0);
            run(t, world_size, &o, false, &stored, &gathered);
            CHECK_HERE();
            if (stored < masters - SLACK || stored > masters + START_SLACK)
                FAIL("%d ranks: masters of %d bytes take %lld", world_size, masters,
                     (long long)stored);
            if (gathered > SLACK)
                FAIL("%d ranks: gathering adds %lld bytes", world_size, (long long)gathered);
        }
        const fsdp_fully_shard_options f16 = {.mp_policy = {.param_dtype = FSDP_DTYPE_F16}};
        run(t, world_size, &f16, false, &stored, &gathered);
        CHECK_HERE();
        if (gathered < 2 * NUMEL - SLACK || gathered > 2 * NUMEL + SLACK)
            FAIL("%d ranks: copies of %d bytes take %lld", world_size, 2 * NUMEL,
                 (long long)gathered);
    }
}

/* Without sharding every rank has all trained parameters, but frozen ones are stored once. */
TEST(frozen_parameters_without_sharding_are_stored_once_for_all_processes)
{
    NEEDS_PSS();
    const fsdp_fully_shard_options o = {.no_shard = true};
    int64_t trained, frozen, gathered;
    run(t, 2, &o, false, &trained, &gathered);
    CHECK_HERE();
    run(t, 2, &o, true, &frozen, &gathered);
    CHECK_HERE();
    if (trained < 8 * NUMEL - SLACK)
        FAIL("two whole masters of %d bytes take %lld", 4 * NUMEL, (long long)trained);
    if (frozen > 4 * NUMEL + START_SLACK || gathered > SLACK)
        FAIL("frozen parameters of %d bytes take %lld, and %lld gathered", 4 * NUMEL,
             (long long)frozen, (long long)gathered);
}
