/* See svd.h. */
#include "src/base/svd.h"

#include <math.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/philox.h"

enum {
    MOST_SWEEPS = 60,
    LANES = 8 /* partial sums of a scalar product; their number sets the order of its additions */
};

/* Two rows of Jacobi's method count as orthogonal if the cosine of their angle has at most this
 * magnitude. */
static const double ORTHOGONAL = 1e-15;

static double dot(const double *a, const double *b, int64_t n)
{
    double sums[LANES] = {0}, sum = 0.0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            sums[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        sum += a[i] * b[i];
    for (int k = 0; k < LANES; k++)
        sum += sums[k];
    return sum;
}

static void rotate(double *a, double *b, int64_t n, double c, double s)
{
    for (int64_t i = 0; i < n; i++) {
        const double x = a[i];
        a[i] = c * x - s * b[i];
        b[i] = s * x + c * b[i];
    }
}

/* --- Jacobi's method --- */

/* A matrix [k, n] with k <= n. Rotations of its rows make them orthogonal. Then each row is a right
 * singular vector, multiplied by its singular value. */
typedef struct jacobi {
    double *m; /* [k, n] */
    double *u; /* [k, k] the product of the rotations: row i is the left vector of row i of m */
    int64_t k, n;
    double least; /* a row counts as zero if its sum of squares is at most `least` */
} jacobi;

/* Make rows p and q orthogonal. Return false if they are orthogonal already. */
static bool rotate_pair(const jacobi *r, int64_t p, int64_t q)
{
    double *a = r->m + p * r->n, *b = r->m + q * r->n;
    const double aa = dot(a, a, r->n), bb = dot(b, b, r->n), ab = dot(a, b, r->n);
    if (aa <= r->least || bb <= r->least || fabs(ab) <= ORTHOGONAL * sqrt(aa * bb))
        return false;
    const double zeta = (bb - aa) / (2.0 * ab);
    const double t = copysign(1.0, zeta) / (fabs(zeta) + sqrt(1.0 + zeta * zeta));
    const double c = 1.0 / sqrt(1.0 + t * t);
    rotate(a, b, r->n, c, c * t);
    rotate(r->u + p * r->k, r->u + q * r->k, r->k, c, c * t);
    return true;
}

static void orthogonalize(jacobi *r)
{
    const double all = dot(r->m, r->m, r->k * r->n);
    r->least = all * 1e-32;
    bool rotated = true;
    for (int sweep = 0; rotated && sweep < MOST_SWEEPS; sweep++) {
        rotated = false;
        for (int64_t p = 0; p < r->k; p++)
            for (int64_t q = p + 1; q < r->k; q++)
                rotated |= rotate_pair(r, p, q);
    }
}

/* Return the row with the largest sum of squares, and set its entry in `squares` to -1. */
static int64_t take_largest(double *squares, int64_t k)
{
    int64_t best = 0;
    for (int64_t i = 1; i < k; i++)
        if (squares[i] > squares[best])
            best = i;
    squares[best] = -1.0;
    return best;
}

/* Decompose r->m, which is overwritten. The left vectors [k, most] are stored in `u`, the right
 * ones [n, most] in `v`. */
static fsdp_status decompose_rows(jacobi *r, int64_t most, double *u, double *s, double *v)
{
    r->u = fsdp_calloc((size_t)(r->k * r->k), sizeof *r->u);
    double *squares = fsdp_calloc((size_t)r->k, sizeof *squares);
    const bool has_memory = r->u && squares;
    if (has_memory) {
        for (int64_t i = 0; i < r->k; i++)
            r->u[i * r->k + i] = 1.0;
        orthogonalize(r);
        for (int64_t i = 0; i < r->k; i++)
            squares[i] = dot(r->m + i * r->n, r->m + i * r->n, r->n);
    }
    for (int64_t j = 0; has_memory && j < most; j++) {
        const int64_t row = take_largest(squares, r->k);
        const double *right = r->m + row * r->n, *left = r->u + row * r->k;
        const double norm = sqrt(dot(right, right, r->n));
        s[j] = norm;
        for (int64_t i = 0; i < r->k; i++)
            u[i * most + j] = left[i];
        for (int64_t i = 0; i < r->n; i++)
            v[i * most + j] = norm > 0.0 ? right[i] / norm : 0.0;
    }
    fsdp_free(squares);
    fsdp_free(r->u);
    return has_memory ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* --- common to both methods --- */

static fsdp_status begin(const float *w, int64_t rows, int64_t cols, int64_t r, fsdp_svd *svd)
{
    FSDP_ASSERT(r >= 1 && r <= (rows < cols ? rows : cols));
    *svd = (fsdp_svd){0};
    for (int64_t i = 0; i < rows * cols; i++)
        if (!isfinite(w[i]))
            return fsdp_error(FSDP_ERR_INVALID,
                              "element [%lld, %lld] is %g: singular values need finite numbers",
                              (long long)(i / cols), (long long)(i % cols), (double)w[i]);
    svd->u = fsdp_calloc((size_t)(rows * r), sizeof *svd->u);
    svd->s = fsdp_calloc((size_t)r, sizeof *svd->s);
    svd->v = fsdp_calloc((size_t)(cols * r), sizeof *svd->v);
    return svd->u && svd->s && svd->v ? FSDP_OK : FSDP_ERR_NOMEM;
}

void fsdp_svd_fini(fsdp_svd *svd)
{
    fsdp_free(svd->u);
    fsdp_free(svd->s);
    fsdp_free(svd->v);
    *svd = (fsdp_svd){0};
}

/* Return w [rows, cols] in float64, transposed if `transposes`. The caller owns the result. */
static double *copy_of(const float *w, int64_t rows, int64_t cols, bool transposes)
{
    double *copy = fsdp_calloc((size_t)(rows * cols), sizeof *copy);
    for (int64_t i = 0; copy && i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            copy[transposes ? j * rows + i : i * cols + j] = (double)w[i * cols + j];
    return copy;
}

fsdp_status fsdp_svd_exact(const float *w, int64_t n_rows, int64_t n_cols, int64_t r, fsdp_svd *svd)
{
    const bool is_tall = n_rows > n_cols;
    FSDP_TRY(begin(w, n_rows, n_cols, r, svd));
    jacobi all = {.m = copy_of(w, n_rows, n_cols, is_tall),
                  .k = is_tall ? n_cols : n_rows,
                  .n = is_tall ? n_rows : n_cols};
    if (!all.m)
        return FSDP_ERR_NOMEM;
    const fsdp_status status =
        decompose_rows(&all, r, is_tall ? svd->v : svd->u, svd->s, is_tall ? svd->u : svd->v);
    fsdp_free(all.m);
    return status;
}

/* --- the randomized method --- */

/* A tall matrix: w [rows, cols], or its transpose if w is wide. */
typedef struct tall {
    const float *w;
    int64_t rows, cols; /* extents of w */
    bool transposed;
} tall;

/* Compute y [rows of a, q] = a x or, if `transposes` is true, y [columns of a, q] = a^T x. */
static void multiply(const tall *a, bool transposes, const double *x, int64_t q, double *y)
{
    const bool by_rows = transposes == a->transposed; /* true: y = w x; false: y = w^T x */
    for (int64_t i = 0; !by_rows && i < a->cols * q; i++)
        y[i] = 0.0;
    for (int64_t i = 0; i < a->rows; i++) {
        for (int64_t k = 0; by_rows && k < q; k++)
            y[i * q + k] = 0.0;
        for (int64_t j = 0; j < a->cols; j++) {
            const double value = (double)a->w[i * a->cols + j];
            const double *from = x + (by_rows ? j : i) * q;
            double *to = y + (by_rows ? i : j) * q;
            for (int64_t k = 0; k < q; k++)
                to[k] += value * from[k];
        }
    }
}

/* Replace the columns of x [n, q] by an orthonormal basis of the space that they span, by the
 * modified Gram-Schmidt method, twice. A column that depends on earlier ones becomes zero. */
static void orthonormalize(double *x, int64_t n, int64_t q)
{
    for (int64_t k = 0; k < q; k++) {
        double before = 0.0, after = 0.0;
        for (int64_t i = 0; i < n; i++)
            before += x[i * q + k] * x[i * q + k];
        for (int64_t pass = 0; pass < 2; pass++)
            for (int64_t p = 0; p < k; p++) {
                double sum = 0.0;
                for (int64_t i = 0; i < n; i++)
                    sum += x[i * q + p] * x[i * q + k];
                for (int64_t i = 0; i < n; i++)
                    x[i * q + k] -= sum * x[i * q + p];
            }
        for (int64_t i = 0; i < n; i++)
            after += x[i * q + k] * x[i * q + k];
        const double factor = after > 1e-26 * before ? 1.0 / sqrt(after) : 0.0;
        for (int64_t i = 0; i < n; i++)
            x[i * q + k] *= factor;
    }
}

/* Set x [n] to numbers of the standard normal distribution (Box and Muller 1958). */
static void draw_normal(double *x, int64_t n, uint64_t seed)
{
    static const double TWO_PI = 6.283185307179586;
    for (int64_t i = 0; i < n; i += 2) {
        const fsdp_philox bits = fsdp_philox4x32(fsdp_mix64(seed), (uint64_t)i, 0);
        const double radius = sqrt(-2.0 * log(((double)bits.v[0] + 1.0) * 0x1p-32));
        const double angle = TWO_PI * (double)bits.v[1] * 0x1p-32;
        x[i] = radius * cos(angle);
        if (i + 1 < n)
            x[i + 1] = radius * sin(angle);
    }
}

/* The memory of fsdp_svd_low_rank(). */
typedef struct work {
    double *basis; /* [rows of a, r] */
    double *x;     /* [columns of a, r] */
    double *m;     /* [r, columns of a] basis^T a */
    double *u;     /* [r, r] the left vectors of m */
} work;

static fsdp_status low_rank(const tall *a, int64_t n_rows, int64_t n_cols, int64_t r, int niter,
                            uint64_t seed, const work *w, double *u, double *s, double *v)
{
    draw_normal(w->x, n_cols * r, seed);
    multiply(a, false, w->x, r, w->basis);
    orthonormalize(w->basis, n_rows, r);
    for (int i = 0; i < niter; i++) {
        multiply(a, true, w->basis, r, w->x);
        orthonormalize(w->x, n_cols, r);
        multiply(a, false, w->x, r, w->basis);
        orthonormalize(w->basis, n_rows, r);
    }
    multiply(a, true, w->basis, r, w->x);
    for (int64_t i = 0; i < n_cols; i++)
        for (int64_t k = 0; k < r; k++)
            w->m[k * n_cols + i] = w->x[i * r + k];
    jacobi small = {.m = w->m, .k = r, .n = n_cols};
    FSDP_TRY(decompose_rows(&small, r, w->u, s, v));
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t j = 0; j < r; j++) {
            double sum = 0.0;
            for (int64_t k = 0; k < r; k++)
                sum += w->basis[i * r + k] * w->u[k * r + j];
            u[i * r + j] = sum;
        }
    return FSDP_OK;
}

fsdp_status fsdp_svd_low_rank(const float *w, int64_t n_rows, int64_t n_cols, int64_t r, int niter,
                              uint64_t seed, fsdp_svd *svd)
{
    const bool is_wide = n_rows < n_cols;
    const int64_t height = is_wide ? n_cols : n_rows, width = is_wide ? n_rows : n_cols;
    const tall a = {.w = w, .rows = n_rows, .cols = n_cols, .transposed = is_wide};
    FSDP_TRY(begin(w, n_rows, n_cols, r, svd));
    const work memory = {.basis = fsdp_calloc((size_t)(height * r), sizeof(double)),
                         .x = fsdp_calloc((size_t)(width * r), sizeof(double)),
                         .m = fsdp_calloc((size_t)(width * r), sizeof(double)),
                         .u = fsdp_calloc((size_t)(r * r), sizeof(double))};
    fsdp_status status =
        memory.basis && memory.x && memory.m && memory.u ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = low_rank(&a, height, width, r, niter, seed, &memory, is_wide ? svd->v : svd->u,
                          svd->s, is_wide ? svd->u : svd->v);
    fsdp_free(memory.basis);
    fsdp_free(memory.x);
    fsdp_free(memory.m);
    fsdp_free(memory.u);
    return status;
}
