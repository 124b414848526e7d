/* Matrix products on one thread by oneDNN (libdnnl 2.6, C API).
 *
 * For each shape, oneDNN compiles a primitive (0.1 to 0.5 ms). Primitives are therefore kept in a
 * hash table, whose key contains everything that a primitive depends on. oneDNN also has a cache of
 * 1024 primitives, which takes 90 MiB when it is full. The program `fsdp` disables that cache
 * (main.c); the library does not.
 *
 * Debian's oneDNN parallelizes with OpenMP. This program instead calls oneDNN from several threads,
 * and each call uses one OpenMP thread. The number of OpenMP threads is a setting of the calling
 * thread. The setting is restored after the call, because the program that uses this library may
 * use OpenMP itself. While a primitive runs, it needs temporary memory, which oneDNN calls a
 * scratchpad. Each worker has one scratchpad. */
#include <dnnl.h>
#include <pthread.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/kernels/cpu/product_testing.h"
#include "src/kernels/cpu/scratch.h"

/* Declared here because some compilers that can link libgomp do not find its header omp.h. */
extern int omp_get_max_threads(void);
extern void omp_set_num_threads(int threads);

enum {
    BUCKET_BITS = 10,
    BUCKETS = 1 << BUCKET_BITS,
    /* The limit of the number of primitives is a compromise between memory and time. A primitive
     * takes up to about 90 KiB. Batches of varying length need about 40 new shapes per step, and
     * few of these shapes occur again. t5-demo took 5.16 s of processor time with a limit of 512,
     * 5.18 s with 192 and 5.62 s with 96. */
    MAX_PRIMITIVES = 192,
};

/* The arguments that one worker passes to a primitive. A memory object (dnnl_memory_t) consists of
 * the description of a matrix and a pointer to its elements. */
typedef struct arguments {
    dnnl_memory_t a, b, c, bias, scratchpad;
    bool ready;
} arguments;

typedef struct primitive {
    fsdp_cpu_product shape;
    dnnl_primitive_t handle;
    dnnl_primitive_desc_t description;
    size_t scratchpad_bytes;
    uint64_t last_used;   /* the value of fsdp_cpu_products.now when the primitive was last used */
    arguments *arguments; /* [workers]; each worker uses its own */
    struct primitive *next;
} primitive;

struct fsdp_cpu_products {
    dnnl_engine_t engine;
    dnnl_stream_t *streams;      /* [workers] */
    fsdp_scratch_block *scratch; /* [workers] */
    int workers;
    pthread_mutex_t lock; /* protects the fields below */
    uint64_t now;         /* number of calls of fsdp_cpu_products_begin() so far */
    size_t count;
    primitive *buckets[BUCKETS];
};

static fsdp_status check_dnnl(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return FSDP_OK;
    if (status == dnnl_out_of_memory)
        return fsdp_error(FSDP_ERR_NOMEM, "oneDNN: %s: out of memory", what);
    return fsdp_error(FSDP_ERR_UNSUPPORTED, "oneDNN: %s: status %d", what, (int)status);
}
#define TRY_DNNL(call) FSDP_TRY(check_dnnl(call, #call))

/* --- one primitive --- */

static dnnl_data_type_t data_type(fsdp_dtype dtype)
{
    return dtype == FSDP_DTYPE_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* Sets *d to the description of a matrix of rows x columns. If `transposed` is true, the matrix is
 * stored as [columns, rows]. */
static dnnl_status_t describe_matrix(dnnl_memory_desc_t *d, int64_t rows, int64_t columns,
                                     int64_t ld, bool transposed, fsdp_dtype dtype)
{
    dnnl_dims_t dims = {rows, columns};
    dnnl_dims_t strides = {transposed ? 1 : ld, transposed ? ld : 1};
    return dnnl_memory_desc_init_by_strides(d, 2, dims, data_type(dtype), strides);
}

static fsdp_status set_attributes(const fsdp_cpu_product *shape, dnnl_primitive_attr_t attr)
{
    TRY_DNNL(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    if (!shape->accumulate)
        return FSDP_OK;
    dnnl_post_ops_t post_ops;
    TRY_DNNL(dnnl_post_ops_create(&post_ops));
    fsdp_status status = check_dnnl(dnnl_post_ops_append_sum(post_ops, 1.0f), "sum");
    if (status == FSDP_OK)
        status = check_dnnl(dnnl_primitive_attr_set_post_ops(attr, post_ops), "post-ops");
    dnnl_post_ops_destroy(post_ops);
    return status;
}

static fsdp_status create_handle(fsdp_cpu_products *products, primitive *p,
                                 dnnl_primitive_attr_t attr)
{
    const fsdp_cpu_product *s = &p->shape;
    dnnl_memory_desc_t a, b, c, bias;
    dnnl_matmul_desc_t matmul;
    TRY_DNNL(describe_matrix(&a, s->m, s->k, s->lda, s->trans_a, s->ab_dtype));
    TRY_DNNL(describe_matrix(&b, s->k, s->n, s->ldb, s->trans_b, s->ab_dtype));
    TRY_DNNL(describe_matrix(&c, s->m, s->n, s->ldc, false, s->c_dtype));
    TRY_DNNL(describe_matrix(&bias, 1, s->n, s->n, false, s->ab_dtype));
    TRY_DNNL(dnnl_matmul_desc_init(&matmul, &a, &b, s->bias ? &bias : NULL, &c));
    FSDP_TRY(set_attributes(s, attr));
    TRY_DNNL(dnnl_primitive_desc_create(&p->description, &matmul, attr, products->engine, NULL));
    TRY_DNNL(dnnl_primitive_create(&p->handle, p->description));
    p->scratchpad_bytes = dnnl_memory_desc_get_size(
        dnnl_primitive_desc_query_md(p->description, dnnl_query_scratchpad_md, 0));
    return FSDP_OK;
}

static void arguments_fini(arguments *arg)
{
    dnnl_memory_t all[] = {arg->a, arg->b, arg->c, arg->bias, arg->scratchpad};
    for (size_t i = 0; i < FSDP_LENGTH(all); i++)
        if (all[i])
            dnnl_memory_destroy(all[i]);
    *arg = (arguments){0};
}

static void primitive_destroy(primitive *p, int workers)
{
    for (int i = 0; i < workers; i++)
        arguments_fini(&p->arguments[i]);
    if (p->handle)
        dnnl_primitive_destroy(p->handle);
    if (p->description)
        dnnl_primitive_desc_destroy(p->description);
    fsdp_free(p->arguments);
    fsdp_free(p);
}

static fsdp_status primitive_create(fsdp_cpu_products *products, const fsdp_cpu_product *shape,
                                    primitive **out)
{
    primitive *p = fsdp_calloc(1, sizeof *p);
    if (!p || !(p->arguments = fsdp_calloc((size_t)products->workers, sizeof *p->arguments))) {
        fsdp_free(p);
        return fsdp_error_nomem();
    }
    p->shape = *shape;
    dnnl_primitive_attr_t attr;
    fsdp_status status = check_dnnl(dnnl_primitive_attr_create(&attr), "attributes");
    if (status == FSDP_OK) {
        status = create_handle(products, p, attr);
        dnnl_primitive_attr_destroy(attr);
    }
    if (status != FSDP_OK) {
        fsdp_error_context(status, "product %lld x %lld x %lld", (long long)shape->m,
                           (long long)shape->n, (long long)shape->k);
        primitive_destroy(p, products->workers);
        return status;
    }
    *out = p;
    return FSDP_OK;
}

static fsdp_status create_memory(const fsdp_cpu_products *products, const primitive *p,
                                 dnnl_query_t what, int index, dnnl_memory_t *memory)
{
    const dnnl_memory_desc_t *d = dnnl_primitive_desc_query_md(p->description, what, index);
    return check_dnnl(dnnl_memory_create(memory, d, products->engine, DNNL_MEMORY_NONE), "memory");
}

static fsdp_status create_arguments(const fsdp_cpu_products *products, const primitive *p,
                                    arguments *arg)
{
    FSDP_TRY(create_memory(products, p, dnnl_query_src_md, 0, &arg->a));
    FSDP_TRY(create_memory(products, p, dnnl_query_weights_md, 0, &arg->b));
    FSDP_TRY(create_memory(products, p, dnnl_query_dst_md, 0, &arg->c));
    FSDP_TRY(create_memory(products, p, dnnl_query_scratchpad_md, 0, &arg->scratchpad));
    if (p->shape.bias) /* oneDNN treats the bias as a second weights matrix, with index 1 */
        FSDP_TRY(create_memory(products, p, dnnl_query_weights_md, 1, &arg->bias));
    return FSDP_OK;
}

/* Sets the pointer of a memory object. oneDNN's function takes a pointer that is not const,
 * although oneDNN does not write to inputs. */
static dnnl_status_t point_at(dnnl_memory_t memory, const void *data)
{
    union {
        const void *in;
        void *out;
    } pointer = {.in = data};
    return dnnl_memory_set_data_handle(memory, pointer.out);
}

static fsdp_status execute_primitive(fsdp_cpu_products *products, int worker, primitive *p,
                                     const void *a, const void *b, void *c, const void *bias)
{
    arguments *arg = &p->arguments[worker];
    if (!arg->ready) {
        fsdp_status status = create_arguments(products, p, arg);
        if (status != FSDP_OK) {
            arguments_fini(arg);
            return status;
        }
        arg->ready = true;
    }
    void *scratchpad = fsdp_scratch_reserve(&products->scratch[worker], p->scratchpad_bytes);
    if (!scratchpad)
        return fsdp_error_nomem();
    TRY_DNNL(point_at(arg->a, a));
    TRY_DNNL(point_at(arg->b, b));
    TRY_DNNL(point_at(arg->c, c));
    TRY_DNNL(point_at(arg->scratchpad, scratchpad));
    dnnl_exec_arg_t args[5] = {{DNNL_ARG_SRC, arg->a},
                               {DNNL_ARG_WEIGHTS, arg->b},
                               {DNNL_ARG_DST, arg->c},
                               {DNNL_ARG_SCRATCHPAD, arg->scratchpad},
                               {DNNL_ARG_BIAS, arg->bias}};
    if (p->shape.bias)
        TRY_DNNL(point_at(arg->bias, bias));
    TRY_DNNL(
        dnnl_primitive_execute(p->handle, products->streams[worker], p->shape.bias ? 5 : 4, args));
    return FSDP_OK;
}

/* --- the hash table of primitives --- */

static size_t bucket_of(const fsdp_cpu_product *s)
{
    const int64_t words[] = {s->m, s->n, s->k, s->lda, s->ldb, s->ldc};
    uint64_t h = (uint64_t)s->ab_dtype | (uint64_t)s->c_dtype << 8 | (uint64_t)s->trans_a << 16 |
                 (uint64_t)s->trans_b << 17 | (uint64_t)s->accumulate << 18 |
                 (uint64_t)s->bias << 19;
    for (size_t i = 0; i < FSDP_LENGTH(words); i++)
        h = (h ^ h >> 29 ^ (uint64_t)words[i]) * 0x9E3779B97F4A7C15u;
    return (size_t)(h >> (64 - BUCKET_BITS));
}

static bool same_shape(const fsdp_cpu_product *x, const fsdp_cpu_product *y)
{
    return x->m == y->m && x->n == y->n && x->k == y->k && x->lda == y->lda && x->ldb == y->ldb &&
           x->ldc == y->ldc && x->ab_dtype == y->ab_dtype && x->c_dtype == y->c_dtype &&
           x->trans_a == y->trans_a && x->trans_b == y->trans_b && x->accumulate == y->accumulate &&
           x->bias == y->bias;
}

static fsdp_status find_or_create_primitive(fsdp_cpu_products *products,
                                            const fsdp_cpu_product *shape, primitive **out)
{
    fsdp_status status = FSDP_OK;
    pthread_mutex_lock(&products->lock);
    primitive **bucket = &products->buckets[bucket_of(shape)], *p = *bucket;
    while (p && !same_shape(&p->shape, shape))
        p = p->next;
    if (!p && (status = primitive_create(products, shape, &p)) == FSDP_OK) {
        p->next = *bucket;
        *bucket = p;
        products->count++;
    }
    if (p) {
        p->last_used = products->now;
        *out = p;
    }
    pthread_mutex_unlock(&products->lock);
    return status;
}

/* If there are more than MAX_PRIMITIVES primitives, frees those whose last_used is at most the
 * average last_used of all primitives. These are about half of the primitives. A primitive that is
 * used regularly has a larger last_used, so it is not freed. */
void fsdp_cpu_products_begin(fsdp_cpu_products *products)
{
    products->now++;
    if (products->count <= MAX_PRIMITIVES)
        return;
    double sum = 0;
    for (int i = 0; i < BUCKETS; i++)
        for (const primitive *p = products->buckets[i]; p; p = p->next)
            sum += (double)p->last_used;
    double average = sum / (double)products->count;
    for (int i = 0; i < BUCKETS; i++) {
        primitive **link = &products->buckets[i];
        while (*link) {
            primitive *p = *link;
            if ((double)p->last_used > average) {
                link = &p->next;
                continue;
            }
            *link = p->next;
            primitive_destroy(p, products->workers);
            products->count--;
        }
    }
}

fsdp_status fsdp_cpu_product_run(fsdp_cpu_products *products, int worker,
                                 const fsdp_cpu_product *shape, const void *a, const void *b,
                                 void *c, const void *bias)
{
    primitive *p = NULL;
    int threads = omp_get_max_threads();
    if (threads != 1)
        omp_set_num_threads(1);
    fsdp_status status = find_or_create_primitive(products, shape, &p);
    if (status == FSDP_OK)
        status = execute_primitive(products, worker, p, a, b, c, bias);
    if (threads != 1)
        omp_set_num_threads(threads);
    return status;
}

const int64_t fsdp_cpu_tiles_least_rows = 32;

bool fsdp_cpu_has_bf16(void)
{
    const unsigned bf16 = (unsigned)dnnl_cpu_isa_avx512_core_bf16;
    return ((unsigned)dnnl_get_effective_cpu_isa() & bf16) == bf16;
}

bool fsdp_cpu_may_use_amx(void)
{
    const unsigned amx = (unsigned)dnnl_cpu_isa_avx512_core_amx;
    return ((unsigned)dnnl_get_effective_cpu_isa() & amx) == amx;
}

#ifdef FSDP_TESTING
size_t fsdp_cpu_products_count(const fsdp_cpu_products *products)
{
    return products->count;
}
#endif

/* --- create, destroy --- */

/* Create the engine, and a stream and an empty scratch buffer for each worker. */
static fsdp_status create_streams(fsdp_cpu_products *products)
{
    const size_t workers = (size_t)products->workers;
    products->streams = fsdp_calloc(workers, sizeof *products->streams);
    products->scratch = fsdp_calloc(workers, sizeof *products->scratch);
    if (!products->streams || !products->scratch)
        return FSDP_ERR_NOMEM;
    FSDP_TRY(check_dnnl(dnnl_engine_create(&products->engine, dnnl_cpu, 0), "engine"));
    for (size_t i = 0; i < workers; i++)
        FSDP_TRY(check_dnnl(
            dnnl_stream_create(&products->streams[i], products->engine, dnnl_stream_default_flags),
            "stream"));
    return FSDP_OK;
}

fsdp_status fsdp_cpu_products_create(int workers, fsdp_cpu_products **out)
{
    fsdp_cpu_products *products = fsdp_calloc(1, sizeof *products);
    if (!products)
        return fsdp_error_nomem();
    products->workers = workers;
    pthread_mutex_init(&products->lock, NULL);
    fsdp_status status = create_streams(products);
    if (status == FSDP_OK)
        *out = products;
    else
        fsdp_cpu_products_destroy(products);
    return status;
}

void fsdp_cpu_products_destroy(fsdp_cpu_products *products)
{
    if (!products)
        return;
    for (int i = 0; i < BUCKETS; i++)
        for (primitive *p = products->buckets[i], *next; p; p = next) {
            next = p->next;
            primitive_destroy(p, products->workers);
        }
    for (int i = 0; i < products->workers; i++) {
        if (products->streams && products->streams[i])
            dnnl_stream_destroy(products->streams[i]);
        if (products->scratch)
            fsdp_scratch_free(&products->scratch[i]);
    }
    if (products->engine)
        dnnl_engine_destroy(products->engine);
    fsdp_free(products->streams);
    fsdp_free(products->scratch);
    pthread_mutex_destroy(&products->lock);
    fsdp_free(products);
}
