/* Creates the kernel context of a CPU rank, with a thread pool and scratch memory, and chooses the
 * ISA. */
#include <cpuid.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/kernels/cpu/context.h"
#include "src/kernels/cpu/product.h"
#include "src/kernels/cpu/scratch.h"

struct fsdp_kernel_context {
    fsdp_thread_pool *pool;
    int threads;
    fsdp_cpu_isa isa;
    fsdp_cpu_multiplier multiplier; /* which code multiplies matrices if `isa` is x86-64-v4 */
    fsdp_scratch_block *scratch;    /* [threads]: one block per worker */
    fsdp_cpu_products *products; /* NULL until the first call of fsdp_kernel_context_products() */
};

static const char *const isa_names[FSDP_CPU_ISA_COUNT] = {"x86-64", "x86-64-v3", "x86-64-v4"};

/* Names for x86-64-v4 that also select the code that multiplies matrices. */
#define V4_ONEDNN "x86-64-v4+onednn"
#define V4_BF16 "x86-64-v4+bf16"
#define V4_FMA "x86-64-v4+fma"
#define V4_AMX "x86-64-v4+amx"

static const char *const multiplier_names[] = {[FSDP_CPU_MULTIPLY_BF16] = V4_BF16,
                                               [FSDP_CPU_MULTIPLY_FMA] = V4_FMA,
                                               [FSDP_CPU_MULTIPLY_AMX] = V4_AMX,
                                               [FSDP_CPU_MULTIPLY_ONEDNN] = V4_ONEDNN};

/* Return true if this machine supports `isa`. __builtin_cpu_supports() also checks that the
 * operating system saves the registers of the ISA. */
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

/* Request permission to use AMX's registers. The operating system saves these registers only for
 * processes that have the permission. Return true if the CPU has AMX-BF16 and the permission was
 * given. */
static bool has_amx(void)
{
    enum {
        AMX_BITS = 1 << 22 | 1 << 24, /* AMX-BF16, AMX-TILE */
        ARCH_REQ_XCOMP_PERM = 0x1023,
        XFEATURE_XTILEDATA = 18
    };
    unsigned a, b, c, d = 0;
    return fsdp_cpu_may_use_amx() && fsdp_cpu_has_bf16() &&
           __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_BITS) == AMX_BITS &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

/* Return true if multiplying bf16 with vdpbf16ps is faster than converting bf16 to f32 and
 * multiplying with FMA. One vdpbf16ps does the work of two FMAs. On AMD's CPUs and on Cooper Lake,
 * one vdpbf16ps takes as long as one FMA, so vdpbf16ps is faster. On Intel's CPUs since Sapphire
 * Rapids, it takes as long as four FMAs (measured: docs/performance.md), so widening is faster.
 * These Intel CPUs also have AMX, which is faster than both. But in a virtual machine that hides
 * AMX, widening is the fastest way. */
static bool bf16_is_fast(void)
{
    __builtin_cpu_init();
    return fsdp_cpu_has_bf16() && (!__builtin_cpu_is("intel") || __builtin_cpu_is("cooperlake"));
}

static fsdp_cpu_multiplier best_multiplier(void)
{
    return has_amx()        ? FSDP_CPU_MULTIPLY_AMX
           : bf16_is_fast() ? FSDP_CPU_MULTIPLY_BF16
                            : FSDP_CPU_MULTIPLY_FMA;
}

#ifdef FSDP_HAVE_DNNL
#define ISAS_OF_V4 "x86-64-v4", V4_ONEDNN
#else
#define ISAS_OF_V4 "x86-64-v4"
#endif
#define ISAS_BELOW_V4 "x86-64-v3", "x86-64", NULL

const char *const *fsdp_kernels_cpu_isas(void)
{
    /* The entries for x86-64-v4 differ in how they multiply matrices. In each list, plain
     * x86-64-v4, which selects the fastest way, comes first. The entries with the slower ways that
     * the CPU supports follow, and the lower ISAs come last. */
    static const char *const amx[] = {ISAS_OF_V4, V4_BF16, V4_FMA, ISAS_BELOW_V4};
    static const char *const fast_bf16[] = {ISAS_OF_V4, V4_FMA, ISAS_BELOW_V4};
    static const char *const slow_bf16[] = {ISAS_OF_V4, V4_BF16, ISAS_BELOW_V4};
    static const char *const no_bf16[] = {ISAS_OF_V4, ISAS_BELOW_V4};
    switch (best_isa()) {
    case FSDP_CPU_ISA_V4:
        return has_amx()              ? amx
               : !fsdp_cpu_has_bf16() ? no_bf16
               : bf16_is_fast()       ? fast_bf16
                                      : slow_bf16;
    case FSDP_CPU_ISA_V3:
        return no_bf16 + FSDP_LENGTH(no_bf16) - 3;
    default:
        return no_bf16 + FSDP_LENGTH(no_bf16) - 2;
    }
}

static fsdp_status choose_isa(const char *name, fsdp_cpu_isa *isa, fsdp_cpu_multiplier *multiplier)
{
    *multiplier = best_multiplier();
    *isa = best_isa();
    if (!name)
        return FSDP_OK;
    int found = -1;
    for (int i = 0; i < FSDP_CPU_ISA_COUNT; i++)
        if (strcmp(name, isa_names[i]) == 0)
            found = i;
    for (size_t i = 0; i < FSDP_LENGTH(multiplier_names) && found < 0; i++)
        if (multiplier_names[i] && strcmp(name, multiplier_names[i]) == 0) {
            found = FSDP_CPU_ISA_V4;
            *multiplier = (fsdp_cpu_multiplier)i;
        }
    if (found < 0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "isa: '%s' is not known; known are x86-64, x86-64-v3, x86-64-v4, " V4_AMX
                          ", " V4_BF16 ", " V4_FMA " and " V4_ONEDNN,
                          name);
#ifndef FSDP_HAVE_DNNL
    if (*multiplier == FSDP_CPU_MULTIPLY_ONEDNN)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "isa: '%s': this build has no oneDNN", name);
#endif
    const bool wants_bf16 = strcmp(name, V4_BF16) == 0;
    const bool wants_amx = strcmp(name, V4_AMX) == 0;
    if (!cpu_has((fsdp_cpu_isa)found) || (wants_bf16 && !fsdp_cpu_has_bf16()) ||
        (wants_amx && !has_amx()))
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "isa: this CPU lacks '%s'; its best is '%s'", name,
                          isa_names[best_isa()]);
    *isa = (fsdp_cpu_isa)found;
    return FSDP_OK;
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

bool fsdp_cpu_multiplies_bf16(const fsdp_kernel_context *c)
{
    return c->isa >= FSDP_CPU_ISA_V4 && fsdp_cpu_has_bf16();
}

fsdp_cpu_multiplier fsdp_kernel_context_multiplier(const fsdp_kernel_context *c)
{
    return c->multiplier;
}

fsdp_status fsdp_kernel_context_products(fsdp_kernel_context *c, fsdp_cpu_products **products)
{
    if (!c->products)
        FSDP_TRY(fsdp_cpu_products_create(c->threads, &c->products));
    fsdp_cpu_products_begin(c->products);
    *products = c->products;
    return FSDP_OK;
}

static fsdp_status create_scratch(fsdp_kernel_context *c)
{
    c->scratch = fsdp_calloc((size_t)c->threads, sizeof *c->scratch);
    if (!c->scratch)
        return FSDP_ERR_NOMEM;
    for (int i = 0; i < c->threads; i++)
        if (!fsdp_scratch_reserve(&c->scratch[i], FSDP_KERNEL_SCRATCH_MIN))
            return FSDP_ERR_NOMEM;
    return FSDP_OK;
}

fsdp_status fsdp_kernel_context_create(const char *isa, int threads, fsdp_kernel_context **context)
{
    fsdp_cpu_isa chosen = FSDP_CPU_ISA_V1;
    fsdp_cpu_multiplier multiplier;
    if (threads < 1)
        return fsdp_error(FSDP_ERR_INVALID, "threads: %d, at least 1 is needed", threads);
    FSDP_TRY(choose_isa(isa, &chosen, &multiplier));
    fsdp_kernel_context *c = fsdp_calloc(1, sizeof *c);
    if (!c)
        return fsdp_error_nomem();
    c->isa = chosen;
    c->multiplier = multiplier;
    c->threads = threads;
    fsdp_status status = create_scratch(c);
    if (status == FSDP_OK)
        status = fsdp_thread_pool_create(threads, &c->pool);
    if (status == FSDP_OK)
        *context = c;
    else
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
