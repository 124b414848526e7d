/* The kernel context of a CPU rank (thread pool, scratch) and the choice of its ISA. */
#include <cpuid.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/kernels/cpu/context.h"
#include "src/kernels/cpu/product.h"
#include "src/kernels/cpu/scratch.h"
#include "src/kernels/cpu/table.h"

struct fsdp_kernel_context {
    fsdp_thread_pool *pool;
    int threads;
    fsdp_cpu_isa isa;
    bool onednn;                 /* for all products, also where our tiles could */
    fsdp_scratch_block *scratch; /* [threads]; each is touched by its worker alone */
    fsdp_cpu_products *products; /* made by the first matrix product */
};

static const char *const isa_names[FSDP_CPU_ISA_COUNT] = {"x86-64", "x86-64-v3", "x86-64-v4"};
#define V4_ONEDNN "x86-64-v4+onednn"

/* __builtin_cpu_supports also asks whether the operating system saves the registers. */
static bool cpu_has(fsdp_cpu_isa isa)
{
    unsigned a, b, c = 0, d, extended = 0;
    __builtin_cpu_init();
    if (isa == FSDP_CPU_ISA_V1)
        return true;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !__get_cpuid(0x80000001u, &a, &b, &extended, &d))
        return false;
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
              __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && (c & bit_MOVBE) &&
              (c & bit_F16C) && (extended & bit_LZCNT);
    if (isa == FSDP_CPU_ISA_V3)
        return v3;
    return v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

static fsdp_cpu_isa best_isa(void)
{
    return cpu_has(FSDP_CPU_ISA_V4)   ? FSDP_CPU_ISA_V4
           : cpu_has(FSDP_CPU_ISA_V3) ? FSDP_CPU_ISA_V3
                                      : FSDP_CPU_ISA_V1;
}

const char *const *fsdp_kernels_cpu_isas(void)
{
    static const char *const names[] = {"x86-64-v4",
#ifdef FSDP_HAVE_DNNL
                                        V4_ONEDNN,
#endif
                                        "x86-64-v3", "x86-64", NULL};
    const fsdp_cpu_isa best = best_isa();
    const char *const *end = names + FSDP_LENGTH(names);
    return best == FSDP_CPU_ISA_V4 ? names : best == FSDP_CPU_ISA_V3 ? end - 3 : end - 2;
}

static fsdp_status choose_isa(const char *name, fsdp_cpu_isa *isa, bool *onednn)
{
    *onednn = name && strcmp(name, V4_ONEDNN) == 0;
#ifndef FSDP_HAVE_DNNL
    if (*onednn)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "isa: '%s': this build has no oneDNN", name);
#endif
    if (*onednn)
        name = isa_names[FSDP_CPU_ISA_V4];
    if (!name) {
        *isa = best_isa();
        return FSDP_OK;
    }
    for (int i = 0; i < FSDP_CPU_ISA_COUNT; i++) {
        if (strcmp(name, isa_names[i]) != 0)
            continue;
        if (!cpu_has((fsdp_cpu_isa)i))
            return fsdp_error(FSDP_ERR_UNSUPPORTED, "isa: this CPU lacks '%s'; its best is '%s'",
                              name, isa_names[best_isa()]);
        *isa = (fsdp_cpu_isa)i;
        return FSDP_OK;
    }
    return fsdp_error(
        FSDP_ERR_UNSUPPORTED,
        "isa: '%s' is not known; known are x86-64, x86-64-v3, x86-64-v4 and " V4_ONEDNN, name);
}

/* --- scratch --- */

void *fsdp_kernel_scratch(fsdp_kernel_context *c, int worker, size_t bytes)
{
    FSDP_DEBUG_ASSERT(worker >= 0 && worker < c->threads);
    return fsdp_scratch_reserve(&c->scratch[worker], bytes);
}

/* --- the context --- */

fsdp_thread_pool *fsdp_kernel_context_pool(const fsdp_kernel_context *c)
{
    return c->pool;
}

fsdp_cpu_isa fsdp_kernel_context_isa(const fsdp_kernel_context *c)
{
    return c->isa;
}

bool fsdp_kernel_context_onednn(const fsdp_kernel_context *c)
{
    return c->onednn;
}

fsdp_status fsdp_kernel_context_products(fsdp_kernel_context *c, fsdp_cpu_products **products)
{
    if (!c->products)
        FSDP_TRY(fsdp_cpu_products_create(c->threads, &c->products));
    fsdp_cpu_products_begin(c->products);
    *products = c->products;
    return FSDP_OK;
}

fsdp_status fsdp_kernels_cpu_open(const char *isa, int threads, fsdp_kernel_context **context,
                                  const fsdp_kernels **kernels)
{
    fsdp_cpu_isa chosen = FSDP_CPU_ISA_V1;
    bool onednn = false;
    if (threads < 1)
        return fsdp_error(FSDP_ERR_INVALID, "threads: %d, at least 1 is needed", threads);
    FSDP_TRY(choose_isa(isa, &chosen, &onednn));
    fsdp_kernel_context *c = fsdp_calloc(1, sizeof *c);
    if (!c)
        return fsdp_error_nomem();
    fsdp_status status = FSDP_ERR_NOMEM;
    c->isa = chosen;
    c->onednn = onednn;
    c->threads = threads;
    if (!(c->scratch = fsdp_calloc((size_t)threads, sizeof *c->scratch)))
        goto fail;
    for (int i = 0; i < threads; i++)
        if (!fsdp_scratch_reserve(&c->scratch[i], FSDP_KERNEL_SCRATCH_MIN))
            goto fail;
    if ((status = fsdp_thread_pool_create(threads, &c->pool)) != FSDP_OK)
        goto fail;
    *context = c;
    *kernels = fsdp_cpu_table(chosen);
    return FSDP_OK;
fail:
    fsdp_kernels_cpu_close(c);
    return status;
}

void fsdp_kernels_cpu_close(fsdp_kernel_context *context)
{
    if (!context)
        return;
    fsdp_thread_pool_destroy(context->pool);
    fsdp_cpu_products_destroy(context->products);
    for (int i = 0; context->scratch && i < context->threads; i++)
        fsdp_scratch_free(&context->scratch[i]);
    fsdp_free(context->scratch);
    fsdp_free(context);
}
