/* chunk: see gradcheck.h for what each op_check tests. */
#include "src/tensor/tensor.h"
#include "tests/autograd/gradcheck.h"

typedef struct chunk_arg {
    int n, unused; /* unused: a part that the result does not depend on, or -1 */
} chunk_arg;

/* The sum of (i + 1) times part i: one result that depends on all parts but the unused one. */
static fsdp_tensor *run_chunk(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    const chunk_arg *a = arg;
    fsdp_tensor *parts[FSDP_MAX_CHUNKS], *sum = NULL;
    fsdp_chunk(s, in[0], a->n, parts);
    for (int i = 0; i < a->n; i++) {
        fsdp_tensor *scaled = fsdp_scale(s, parts[i], (float)(i + 1)), *before = sum;
        fsdp_drop(s, parts[i]);
        if (i != a->unused)
            sum = sum ? fsdp_add(s, sum, scaled) : scaled;
        if (scaled != sum)
            fsdp_drop(s, scaled);
        if (before != sum)
            fsdp_drop(s, before);
    }
    return sum;
}

static void naive_chunk(const op_case *c, const double *const *in, double *out)
{
    const chunk_arg *a = c->arg;
    const int64_t width = op_size(c, 0, c->in[0].ndim - 1), part = width / a->n;
    for (int64_t e = 0; e < op_numel(c, 0) / a->n; e++) {
        out[e] = 0.0;
        for (int i = 0; i < a->n; i++)
            if (i != a->unused)
                out[e] += (i + 1) * in[0][e / part * width + i * part + e % part];
    }
}

TEST(chunk_equals_loops_and_differences)
{
    static const struct {
        chunk_arg arg;
        op_case c;
    } cases[] = {
        {{3, -1}, {.name = "chunk", .in = {{2, {5, 9}}}}},
        {{3, 0}, {.name = "chunk, first part unused", .in = {{2, {5, 9}}}}},
        {{3, 2}, {.name = "chunk, last part unused", .in = {{2, {1, 3}}}}},
        {{8, 4}, {.name = "chunk in eight", .in = {{2, {3, 16}}}}},
        {{1, -1}, {.name = "chunk in one", .in = {{2, {3, 5}}}}},
        {{2, -1}, {.name = "chunk of three dimensions", .in = {{3, {2, 3, 34}}}}},
        {{2, -1}, {.name = "chunk of a vector", .in = {{1, {4}}}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        op_case c = cases[i].c;
        c.run = run_chunk;
        c.naive = naive_chunk;
        c.arg = &cases[i].arg;
        c.n_in = 1;
        op_check(t, &c);
        CHECK_HERE();
    }
}

TEST(chunk_names_what_cannot_be_split)
{
    static const struct {
        int n;
        const char *message;
    } cases[] = {
        {4, "chunk: x is [2, 6]: its last dimension cannot be split into 4 equal parts"},
        {0, "chunk: 0 parts, not in [1, 8]"},
        {9, "chunk: 9 parts, not in [1, 8]"},
    };
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    fsdp_tensor *x = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){2, 6}, 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_scope *s;
        fsdp_tensor *parts[FSDP_MAX_CHUNKS] = {x, x, x, x, x, x, x, x};
        ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
        fsdp_chunk(s, x, cases[i].n, parts);
        ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, cases[i].message);
        for (int k = 0; k < cases[i].n && k < FSDP_MAX_CHUNKS; k++)
            ASSERT(!parts[k]);
        fsdp_scope_close(s);
    }
    fsdp_tensor_release(x);
    fsdp_device_destroy(device);
}
