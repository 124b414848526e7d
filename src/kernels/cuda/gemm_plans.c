/* Products of row-major matrices, computed by cublasLt, which assumes column-major matrices. A
 * row-major matrix is the transpose of the column-major matrix with the same bytes. So cublasLt
 * computes C^T = op(B)^T op(A)^T, where B is the first factor and A is the second factor.
 *
 * Note [Bits of a CUDA product]. A plan depends only on the contents of struct shape, on the
 * version of cublasLt and on the model of the card. The algorithm is the first one that cublasLt's
 * heuristic proposes, and no times are measured to choose it. So all ranks and all runs choose the
 * same algorithm, and repeated products of equal operands give equal bits. Beta is not part of the
 * shape, because the sums of a product are the same whether they overwrite C or are added to C.
 *
 * Nothing else is guaranteed. cublasLt chooses the tiles and the number of parts into which it
 * splits k. Its choice depends on m, n, k, leading dimensions and alignments. So if a product has
 * more rows, the same row of C may have different bits, unlike on the CPU. Alignments above
 * FSDP_GEMM_ALIGNMENT do not matter, so that bits do not depend on where a rank's allocator placed
 * a matrix.
 *
 * Sums are not rounded before they are complete, with two exceptions. Note [Odd extents] in gemm.c
 * describes the first exception. The second is that some algorithms round a product to the dtype of
 * C before they add C (seen on an H200, for C in bfloat16 with n = 16). Algorithms that split k and
 * add the parts in the dtype of C are allowed only if C is float32. All other algorithms add the
 * parts in float32. In each algorithm the order of the parts is fixed: cublasLt serializes
 * additions in place, or adds parts in a second kernel. */
#include "src/kernels/cuda/gemm_plans.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/philox.h"

enum {
    BUCKETS = 4096,
    SHAPE_WORDS = 8
};

/* Everything that a plan depends on. A shape is the key of a plan in the table of plans. Shapes are
 * compared as bytes, so unused bytes must be zero. */
typedef union shape {
    struct {
        int64_t m, n, k, lda, ldb, ldc;
        uint8_t trans_a, trans_b, ab_dtype, c_dtype;
        uint8_t bias; /* 1: there is a bias, and cublasLt accepts its dtype and its alignment */
        uint8_t tf32;
        uint8_t a_alignment, b_alignment, c_alignment;    /* bytes, at most FSDP_GEMM_ALIGNMENT */
        uint8_t is_float8, a_format, b_format, is_scaled; /* see fsdp_gemm_float8 */
    };
    uint64_t words[SHAPE_WORDS];
} shape;

struct fsdp_gemm_plan {
    shape shape;
    fsdp_gemm_plan *next; /* the next plan in the same bucket */
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c; /* layouts of the matrices of fsdp_gemm_args */
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
    bool has_bias;
    /* The reason why cublasLt has no algorithm for this product, or CUBLAS_STATUS_SUCCESS if it has
     * one. */
    cublasStatus_t refusal;
};

struct fsdp_gemm_plans {
    fsdp_cublaslt lt;
    cublasLtHandle_t handle;
    size_t workspace_bytes; /* the largest workspace that an algorithm may use */
    bool tf32;
    int n_plans;
    fsdp_gemm_plan *buckets[BUCKETS];
};

/* --- shapes --- */

static uint8_t alignment_of(const void *pointer)
{
    const uintptr_t address = (uintptr_t)pointer | FSDP_GEMM_ALIGNMENT;
    return (uint8_t)(address & -address);
}

static shape shape_of(const fsdp_gemm_plans *plans, const fsdp_gemm_args *args,
                      const fsdp_gemm_float8 *float8)
{
    shape s;
    memset(&s, 0, sizeof s);
    s.m = args->m;
    s.n = args->n;
    s.k = args->k;
    s.lda = args->lda;
    s.ldb = args->ldb;
    s.ldc = args->ldc;
    s.trans_a = args->trans_a;
    s.trans_b = args->trans_b;
    s.ab_dtype = (uint8_t)args->ab_dtype;
    s.c_dtype = (uint8_t)args->c_dtype;
    /* cublasLt can add a bias only if the bias has the dtype of C. */
    s.bias = args->bias && args->c_dtype == args->ab_dtype &&
             alignment_of(args->bias) == FSDP_GEMM_ALIGNMENT;
    s.tf32 = plans->tf32 && args->ab_dtype == FSDP_DTYPE_F32;
    s.a_alignment = alignment_of(args->a);
    s.b_alignment = alignment_of(args->b);
    s.c_alignment = alignment_of(args->c);
    if (float8) {
        s.is_float8 = 1;
        s.a_format = (uint8_t)float8->a_format;
        s.b_format = (uint8_t)float8->b_format;
        s.is_scaled = float8->is_scaled;
    }
    return s;
}

static fsdp_gemm_plan **bucket_of(fsdp_gemm_plans *plans, const shape *s)
{
    uint64_t hash = 0;
    for (int i = 0; i < SHAPE_WORDS; i++)
        hash = fsdp_mix64(hash ^ s->words[i]);
    return &plans->buckets[hash % BUCKETS];
}

/* --- one plan --- */

static void plan_destroy(const fsdp_cublaslt *lt, fsdp_gemm_plan *plan)
{
    if (plan->product)
        lt->MatmulDescDestroy(plan->product);
    if (plan->a)
        lt->MatrixLayoutDestroy(plan->a);
    if (plan->b)
        lt->MatrixLayoutDestroy(plan->b);
    if (plan->c)
        lt->MatrixLayoutDestroy(plan->c);
    fsdp_free(plan);
}

static cudaDataType_t data_type(fsdp_dtype dtype)
{
    return dtype == FSDP_DTYPE_F32    ? CUDA_R_32F
           : dtype == FSDP_DTYPE_BF16 ? CUDA_R_16BF
                                      : CUDA_R_16F;
}

static cudaDataType_t operand_type(const shape *s, uint8_t format)
{
    if (!s->is_float8)
        return data_type((fsdp_dtype)s->ab_dtype);
    return format == FSDP_FLOAT8_E4M3FN ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

/* Set the addresses of the factors by which cublasLt multiplies the sums. For cublasLt, B is the
 * first factor. */
static cublasStatus_t set_scales(const fsdp_cublaslt *lt, const fsdp_gemm_plan *plan,
                                 const float *a, const float *b)
{
    const cublasStatus_t status = lt->MatmulDescSetAttribute(
        plan->product, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &b, sizeof b);
    return status == CUBLAS_STATUS_SUCCESS
               ? lt->MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &a,
                                            sizeof a)
               : status;
}

/* Turn off fast accumulation for a float8 product, so that cublasLt adds the sums of parts of k in
 * float32. With fast accumulation, the tensor cores would add all terms with the few bits that they
 * have for float8 operands. The heuristic needs to know whether there will be scales, but not where
 * they are: any address will do. */
static cublasStatus_t describe_float8(const fsdp_cublaslt *lt, const fsdp_gemm_plan *plan)
{
    const int8_t fast = 0;
    const float *const any = (const float *)(uintptr_t)FSDP_GEMM_ALIGNMENT;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (plan->shape.is_float8)
        status = lt->MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast,
                                            sizeof fast);
    if (status == CUBLAS_STATUS_SUCCESS && plan->shape.is_scaled)
        status = set_scales(lt, plan, any, any);
    return status;
}

static cublasStatus_t describe_product(const fsdp_cublaslt *lt, fsdp_gemm_plan *plan)
{
    const shape *s = &plan->shape;
    /* The matrices of cublasLt are column-major, so it computes the transposed product, whose first
     * factor is B. */
    const cublasOperation_t first = s->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = s->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t status = lt->MatmulDescCreate(
        &plan->product, s->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt->MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                            sizeof first);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt->MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                            sizeof second);
    return status == CUBLAS_STATUS_SUCCESS ? describe_float8(lt, plan) : status;
}

/* Create cublasLt's description (layout) of a row-major matrix with `columns` columns. */
static cublasStatus_t describe_matrix(const fsdp_cublaslt *lt, cublasLtMatrixLayout_t *layout,
                                      cudaDataType_t type, int64_t rows, int64_t columns,
                                      int64_t ld)
{
    return lt->MatrixLayoutCreate(layout, type, (uint64_t)columns, (uint64_t)rows, ld);
}

static cublasStatus_t describe_matrices(const fsdp_cublaslt *lt, fsdp_gemm_plan *plan)
{
    const shape *s = &plan->shape;
    cublasStatus_t status =
        describe_matrix(lt, &plan->a, operand_type(s, s->a_format), s->trans_a ? s->k : s->m,
                        s->trans_a ? s->m : s->k, s->lda);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = describe_matrix(lt, &plan->b, operand_type(s, s->b_format),
                                 s->trans_b ? s->n : s->k, s->trans_b ? s->k : s->n, s->ldb);
    if (status == CUBLAS_STATUS_SUCCESS)
        status =
            describe_matrix(lt, &plan->c, data_type((fsdp_dtype)s->c_dtype), s->m, s->n, s->ldc);
    return status;
}

/* Choose whether the product adds a bias, which cublasLt calls an epilogue. If the product does not
 * add a bias, the pointer to the bias must not be set, because cublasLtMatmul() would fail. */
static cublasStatus_t set_bias(const fsdp_cublaslt *lt, fsdp_gemm_plan *plan, bool has_bias)
{
    const cublasLtEpilogue_t epilogue =
        has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    plan->has_bias = has_bias;
    return lt->MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                      sizeof epilogue);
}

/* If an algorithm splits k, it must add the sums of the parts. Return a mask of the acceptable ways
 * to add them; see Note [Bits of a CUDA product]. */
static uint32_t good_reductions(const shape *s)
{
    return s->c_dtype == FSDP_DTYPE_F32
               ? CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
               : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

/* Pass limits to cublasLt, which then proposes only algorithms within these limits. */
static cublasStatus_t set_preference(const fsdp_gemm_plans *plans, const shape *s,
                                     uint32_t reductions, cublasLtMatmulPreference_t preference)
{
    const uint64_t workspace = plans->workspace_bytes;
    const uint32_t a = s->a_alignment, b = s->b_alignment, c = s->c_alignment;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } attributes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &b, sizeof b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &a, sizeof a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c, sizeof c},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &c, sizeof c},
    };
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (status == CUBLAS_STATUS_SUCCESS)
            status = plans->lt.MatmulPreferenceSetAttribute(
                preference, attributes[i].name, attributes[i].value, attributes[i].bytes);
    return status;
}

/* Set the plan's algorithm to the first one that cublasLt's heuristic proposes. Return
 * CUBLAS_STATUS_NOT_SUPPORTED if the heuristic proposes none. */
static cublasStatus_t ask_heuristic(const fsdp_gemm_plans *plans, fsdp_gemm_plan *plan,
                                    uint32_t reductions)
{
    const fsdp_cublaslt *lt = &plans->lt;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    cublasStatus_t status = lt->MatmulPreferenceCreate(&preference);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = set_preference(plans, &plan->shape, reductions, preference);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt->MatmulAlgoGetHeuristic(plans->handle, plan->product, plan->b, plan->a, plan->c,
                                            plan->c, preference, 1, &result, &found);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = found ? result.state : CUBLAS_STATUS_NOT_SUPPORTED;
    if (status == CUBLAS_STATUS_SUCCESS) {
        plan->algorithm = result.algo;
        plan->workspace_bytes = result.workspaceSize;
    }
    if (preference)
        lt->MatmulPreferenceDestroy(preference);
    return status;
}

/* Choose an algorithm that adds the sums of the parts of k in a way that good_reductions() allows.
 * For badly aligned operands, there are few algorithms. If good_reductions() allows none of these
 * algorithms, choose one without this condition. */
static cublasStatus_t choose_algorithm(const fsdp_gemm_plans *plans, fsdp_gemm_plan *plan)
{
    const cublasStatus_t status = ask_heuristic(plans, plan, good_reductions(&plan->shape));
    return status == CUBLAS_STATUS_NOT_SUPPORTED
               ? ask_heuristic(plans, plan, CUBLASLT_REDUCTION_SCHEME_MASK)
               : status;
}

static cublasStatus_t plan_init(const fsdp_gemm_plans *plans, fsdp_gemm_plan *plan)
{
    const fsdp_cublaslt *lt = &plans->lt;
    cublasStatus_t status = describe_product(lt, plan);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = describe_matrices(lt, plan);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = set_bias(lt, plan, plan->shape.bias);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = choose_algorithm(plans, plan);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED || !plan->has_bias)
        return status;
    /* No algorithm can add the bias. So gemm adds the bias itself, and the plan has no bias. */
    status = set_bias(lt, plan, false);
    return status == CUBLAS_STATUS_SUCCESS ? choose_algorithm(plans, plan) : status;
}

static const char *operand_name(const shape *s, uint8_t format)
{
    return s->is_float8 ? fsdp_float8_name((fsdp_float8_format)format)
                        : fsdp_dtype_name((fsdp_dtype)s->ab_dtype);
}

static fsdp_status product_error(const fsdp_gemm_plans *plans, const shape *s, const char *what,
                                 cublasStatus_t status)
{
    return fsdp_error(status == CUBLAS_STATUS_ALLOC_FAILED ? FSDP_ERR_NOMEM : FSDP_ERR_UNSUPPORTED,
                      "product of %lld x %lld in %s and %lld x %lld in %s, result in %s: %s: %s",
                      (long long)s->m, (long long)s->k, operand_name(s, s->a_format),
                      (long long)s->k, (long long)s->n, operand_name(s, s->b_format),
                      fsdp_dtype_name((fsdp_dtype)s->c_dtype), what,
                      plans->lt.GetStatusString(status));
}

size_t fsdp_gemm_plan_workspace(const fsdp_gemm_plan *plan)
{
    return plan->workspace_bytes;
}

bool fsdp_gemm_plan_has_bias(const fsdp_gemm_plan *plan)
{
    return plan->has_bias;
}

fsdp_status fsdp_gemm_plan_start(const fsdp_gemm_plans *plans, const fsdp_gemm_plan *plan,
                                 const fsdp_gemm_args *args, const fsdp_gemm_float8 *float8,
                                 float beta, void *workspace, cudaStream_t stream)
{
    const float alpha = 1.0f;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (plan->shape.is_scaled)
        status = set_scales(&plans->lt, plan, float8->a_reciprocal, float8->b_reciprocal);
    if (status == CUBLAS_STATUS_SUCCESS && plan->has_bias)
        status = plans->lt.MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                  &args->bias, sizeof args->bias);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = plans->lt.Matmul(plans->handle, plan->product, &alpha, args->b, plan->b, args->a,
                                  plan->a, &beta, args->c, plan->c, args->c, plan->c,
                                  &plan->algorithm, workspace, plan->workspace_bytes, stream);
    return status == CUBLAS_STATUS_SUCCESS
               ? FSDP_OK
               : product_error(plans, &plan->shape, "cublasLtMatmul", status);
}

/* --- all plans --- */

static void drop_plans(fsdp_gemm_plans *plans)
{
    for (int i = 0; i < BUCKETS; i++)
        while (plans->buckets[i]) {
            fsdp_gemm_plan *plan = plans->buckets[i];
            plans->buckets[i] = plan->next;
            plan_destroy(&plans->lt, plan);
        }
    plans->n_plans = 0;
}

static fsdp_gemm_plan *find_plan(fsdp_gemm_plan *plan, const shape *s)
{
    while (plan && memcmp(&plan->shape, s, sizeof *s) != 0)
        plan = plan->next;
    return plan;
}

/* Return true if cublasLt would return the same failure for this product again. */
static bool is_refusal(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
           status == CUBLAS_STATUS_ARCH_MISMATCH;
}

/* Make the plan of a product, and add it to `plans`. A plan is also added if cublasLt has no
 * algorithm for the product: its `refusal` says so. After any other failure, such as missing
 * memory, there is no plan, because the next call may succeed. */
static fsdp_status add_plan(fsdp_gemm_plans *plans, const shape *s, fsdp_gemm_plan **out)
{
    if (plans->n_plans >= FSDP_GEMM_MOST_PLANS)
        drop_plans(plans);
    fsdp_gemm_plan *plan = fsdp_calloc(1, sizeof *plan);
    if (!plan)
        return fsdp_error_nomem();
    plan->shape = *s;
    plan->refusal = plan_init(plans, plan);
    const cublasStatus_t status = plan->refusal;
    if (status != CUBLAS_STATUS_SUCCESS && !is_refusal(status)) {
        plan_destroy(&plans->lt, plan);
        return product_error(plans, s, "cublasLt failed to choose an algorithm", status);
    }
    fsdp_gemm_plan **bucket = bucket_of(plans, s);
    plan->next = *bucket;
    *bucket = plan;
    plans->n_plans++;
    *out = plan;
    return FSDP_OK;
}

fsdp_status fsdp_gemm_plans_find(fsdp_gemm_plans *plans, const fsdp_gemm_args *args,
                                 const fsdp_gemm_float8 *float8, const fsdp_gemm_plan **out)
{
    const shape s = shape_of(plans, args, float8);
    fsdp_gemm_plan *plan = find_plan(*bucket_of(plans, &s), &s);
    if (!plan)
        FSDP_TRY(add_plan(plans, &s, &plan));
    if (plan->refusal != CUBLAS_STATUS_SUCCESS)
        return product_error(plans, &s, "cublasLt has no algorithm", plan->refusal);
    *out = plan;
    return FSDP_OK;
}

fsdp_status fsdp_gemm_plans_create(size_t workspace_bytes, fsdp_gemm_plans **out)
{
    fsdp_gemm_plans *plans = fsdp_calloc(1, sizeof *plans);
    if (!plans)
        return fsdp_error_nomem();
    plans->workspace_bytes = workspace_bytes;
    fsdp_status status = fsdp_cublaslt_load(&plans->lt);
    if (status == FSDP_OK) {
        const cublasStatus_t created = plans->lt.Create(&plans->handle);
        if (created != CUBLAS_STATUS_SUCCESS)
            status = fsdp_error(created == CUBLAS_STATUS_ALLOC_FAILED ? FSDP_ERR_NOMEM
                                                                      : FSDP_ERR_UNSUPPORTED,
                                "cublasLtCreate: %s", plans->lt.GetStatusString(created));
    }
    if (status != FSDP_OK) {
        fsdp_gemm_plans_destroy(plans);
        return status;
    }
    *out = plans;
    return FSDP_OK;
}

void fsdp_gemm_plans_destroy(fsdp_gemm_plans *plans)
{
    if (!plans)
        return;
    drop_plans(plans);
    if (plans->handle)
        plans->lt.Destroy(plans->handle);
    fsdp_free(plans);
}

void fsdp_gemm_plans_allow_tf32(fsdp_gemm_plans *plans, bool allow)
{
    plans->tf32 = allow;
}
