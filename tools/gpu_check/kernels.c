/* Lists the kernels that a program runs on a card, and how long each took, by CUPTI.
 *
 *     gcc -O2 -fPIC -shared -I$CUDA_HOME/include -o libkernels.so tools/gpu_check/kernels.c \
 *         -L$CUDA_HOME/lib64 -lcupti -lpthread
 *     CUDA_INJECTION64_PATH=$PWD/libkernels.so KERNELS_OUT=kernels.txt PROGRAM
 *
 * CUDA loads the library into the program and calls InitializeInjection(). When the program ends,
 * the list is written to the file KERNELS_OUT (standard error): the kernels, copies and memsets of
 * the last KERNELS_LAST_MS milliseconds (300), summed by name and grid, the longest sum first. The
 * first line says for how long the card was busy, and for how long it waited. The library is a tool
 * of its own, so it does not use libfsdp. */
#include <cupti.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUFFER_BYTES = 1 << 22,
    MOST_LINES = 200
};
static const uint64_t long_gap_ns = 20000;

typedef struct activity {
    const char *name;
    uint64_t begin_ns, end_ns;
    uint32_t grid[3]; /* for a copy or memset: its bytes, 0, 0 */
    uint32_t registers, shared_bytes;
} activity;

typedef struct sum {
    const activity *first;
    uint64_t total_ns, least_ns;
    size_t n;
} sum;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static activity *activities;
static size_t n_activities, cap_activities;
static char **names;
static size_t n_names, cap_names;

static void *grown(void *items, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return items;
    *cap = *cap ? 2 * *cap : 1024;
    void *more = realloc(items, *cap * size);
    if (!more)
        abort();
    return more;
}

/* Return a copy of `name` that lasts; equal names have equal addresses. */
static const char *lasting(const char *name)
{
    for (size_t i = n_names; i-- > 0;)
        if (strcmp(names[i], name) == 0)
            return names[i];
    names = grown(names, n_names, &cap_names, sizeof *names);
    names[n_names] = strdup(name);
    if (!names[n_names])
        abort();
    return names[n_names++];
}

static void add(activity a)
{
    a.name = lasting(a.name);
    activities = grown(activities, n_activities, &cap_activities, sizeof *activities);
    activities[n_activities++] = a;
}

static void add_record(const CUpti_Activity *record)
{
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const CUpti_ActivityKernel10 *k = (const void *)record;
        add((activity){.name = k->name,
                       .begin_ns = k->start,
                       .end_ns = k->end,
                       .grid = {(uint32_t)k->gridX, (uint32_t)k->gridY, (uint32_t)k->gridZ},
                       .registers = k->registersPerThread,
                       .shared_bytes = (uint32_t)(k->dynamicSharedMemory + k->staticSharedMemory)});
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const CUpti_ActivityMemcpy6 *c = (const void *)record;
        const char *const kinds[] = {"copy", "copy to the card", "copy to the host"};
        add((activity){.name = kinds[c->copyKind <= 2 ? c->copyKind : 0],
                       .begin_ns = c->start,
                       .end_ns = c->end,
                       .grid = {(uint32_t)c->bytes}});
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const CUpti_ActivityMemset4 *m = (const void *)record;
        add((activity){.name = "memset",
                       .begin_ns = m->start,
                       .end_ns = m->end,
                       .grid = {(uint32_t)m->bytes}});
    }
}

static void give_buffer(uint8_t **buffer, size_t *bytes, size_t *most_records)
{
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *bytes = *buffer ? BUFFER_BYTES : 0;
    *most_records = 0;
}

static void take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes,
                        size_t used)
{
    CUpti_Activity *record = NULL;
    (void)context, (void)stream, (void)bytes;
    pthread_mutex_lock(&lock);
    while (cuptiActivityGetNextRecord(buffer, used, &record) == CUPTI_SUCCESS)
        add_record(record);
    pthread_mutex_unlock(&lock);
    free(buffer);
}

static int by_begin(const void *a, const void *b)
{
    const activity *x = a, *y = b;
    return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

static int by_name(const void *a, const void *b)
{
    const activity *x = a, *y = b;
    const int order = strcmp(x->name, y->name);
    return order ? order : memcmp(x->grid, y->grid, sizeof x->grid);
}

static int by_total(const void *a, const void *b)
{
    const sum *x = a, *y = b;
    return (x->total_ns < y->total_ns) - (x->total_ns > y->total_ns);
}

static void print_busy(FILE *out, const activity *a, size_t n)
{
    uint64_t reach = a[0].begin_ns, busy = 0, gaps = 0, long_gaps = 0;
    for (size_t i = 0; i < n; i++) {
        if (a[i].begin_ns > reach) {
            const uint64_t gap = a[i].begin_ns - reach;
            gaps += gap;
            long_gaps += gap > long_gap_ns ? gap : 0;
            reach = a[i].begin_ns;
        }
        if (a[i].end_ns > reach) {
            busy += a[i].end_ns - reach;
            reach = a[i].end_ns;
        }
    }
    fprintf(out, "%.3f ms: busy %.3f ms, gaps %.3f ms, of these longer than 20 us: %.3f ms\n",
            (double)(reach - a[0].begin_ns) * 1e-6, (double)busy * 1e-6, (double)gaps * 1e-6,
            (double)long_gaps * 1e-6);
}

static void print_sums(FILE *out, activity *a, size_t n)
{
    sum *sums = calloc(n, sizeof *sums);
    size_t n_sums = 0;
    if (!sums)
        return;
    qsort(a, n, sizeof *a, by_name);
    for (size_t i = 0; i < n; i++) {
        const uint64_t ns = a[i].end_ns - a[i].begin_ns;
        if (!n_sums || by_name(sums[n_sums - 1].first, &a[i]) != 0)
            sums[n_sums++] = (sum){.first = &a[i], .least_ns = ns};
        sum *s = &sums[n_sums - 1];
        s->total_ns += ns;
        s->least_ns = ns < s->least_ns ? ns : s->least_ns;
        s->n++;
    }
    qsort(sums, n_sums, sizeof *sums, by_total);
    for (size_t i = 0; i < n_sums && i < MOST_LINES; i++) {
        const sum *s = &sums[i];
        const activity *k = s->first;
        fprintf(out,
                "%9.3f ms %6zu x %9.2f us (least %8.2f), grid %u,%u,%u, %u registers, %u bytes "
                "shared: %.150s\n",
                (double)s->total_ns * 1e-6, s->n, (double)s->total_ns * 1e-3 / (double)s->n,
                (double)s->least_ns * 1e-3, k->grid[0], k->grid[1], k->grid[2], k->registers,
                k->shared_bytes, k->name);
    }
    free(sums);
}

static void report(void)
{
    const char *path = getenv("KERNELS_OUT"), *last = getenv("KERNELS_LAST_MS");
    cuptiActivityFlushAll(1);
    FILE *out = path ? fopen(path, "w") : stderr;
    if (!out) {
        perror(path);
        return;
    }
    pthread_mutex_lock(&lock);
    if (n_activities) {
        qsort(activities, n_activities, sizeof *activities, by_begin);
        const uint64_t span = (uint64_t)((last ? atof(last) : 300.0) * 1e6);
        const uint64_t end = activities[n_activities - 1].end_ns;
        size_t first = 0;
        while (first + 1 < n_activities && activities[first].begin_ns + span < end)
            first++;
        print_busy(out, activities + first, n_activities - first);
        print_sums(out, activities + first, n_activities - first);
    } else {
        fprintf(out, "no kernel ran\n");
    }
    pthread_mutex_unlock(&lock);
    if (path)
        fclose(out);
}

int InitializeInjection(void);
int InitializeInjection(void)
{
    cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET);
    return atexit(report) == 0;
}
