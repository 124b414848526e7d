/* The part of `fsdp verify` that compares float8 with PyTorch's values in float8.safetensors:
 * casts, the values of codes, and matrices that have one scale in total, one for each row, or one
 * for each column. All comparisons are exact: NaN equals NaN, and -0 differs from 0.
 *
 * The file's values come from these formulas: scale = max(amax, 1e-12) / 448 in float32, q = x /
 * scale rounded to e4m3fn, and q * scale for the value of a code. Training instead multiplies x by
 * fsdp_float8_scale(), which is 448 / max(amax, 1e-12), so its numbers may differ slightly. */
#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/float8.h"
#include "src/base/str.h"
#include "src/comm/agree.h"
#include "src/verify/verify_case.h"

static const char file_name[] = "float8.safetensors";

/* A matrix of the file: the tensor "x", cast to float8 with one kind of scales. The scales and x
 * are float32. The caller owns them.
 */
typedef struct float8_matrix {
    const char *name; /* the name of its tensors without the part after the last dot */
    int64_t rows, columns;
    int64_t scale_rows, scale_columns; /* scale_rows is 1 or `rows`; scale_columns is 1 or
                                          `columns` */
    const float *x;
    float *scales; /* [scale_rows, scale_columns] */
} float8_matrix;

/* --- reading --- */

static int64_t rows_of(const fsdp_checkpoint_entry *e)
{
    return e->ndim ? e->shape[0] : 1;
}

/* Set *bytes to the elements of a tensor of bytes: uint8, or float8. The elements are borrowed from
 * the file. */
static fsdp_status read_bytes(const fsdp_checkpoint_entry *e, int64_t numel,
                              const unsigned char **bytes)
{
    if (e->numel != numel || e->bytes != (size_t)numel)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: tensor '%s' has %lld elements in %zu bytes, not %lld of one byte",
                          e->path, e->name, (long long)e->numel, e->bytes, (long long)numel);
    *bytes = e->data;
    return FSDP_OK;
}

static bool same_floats(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* --- a matrix --- */

static int64_t scale_index(const float8_matrix *m, int64_t i)
{
    const int64_t row = i / m->columns, column = i % m->columns;
    return (m->scale_rows == 1 ? 0 : row) * m->scale_columns + (m->scale_columns == 1 ? 0 : column);
}

/* Return a matrix's scales, computed from x. The caller owns the scales. Return NULL when out of
 * memory. */
static float *scales_of(const float8_matrix *m)
{
    const int64_t n = m->scale_rows * m->scale_columns;
    float *scales = fsdp_calloc((size_t)n + 1, sizeof *scales);
    for (int64_t i = 0; scales && i < m->rows * m->columns; i++) {
        float *most = &scales[scale_index(m, i)];
        const float magnitude = fabsf(m->x[i]);
        if (magnitude > *most || isnan(magnitude))
            *most = magnitude;
    }
    for (int64_t i = 0; scales && i < n; i++)
        scales[i] = (scales[i] < 1e-12f ? 1e-12f : scales[i]) / fsdp_float8_max(FSDP_FLOAT8_E4M3FN);
    return scales;
}

static uint8_t code_of(const float8_matrix *m, int64_t i)
{
    return fsdp_float8_saturated(FSDP_FLOAT8_E4M3FN, m->x[i] / m->scales[scale_index(m, i)]);
}

static bool same_codes(uint8_t a, uint8_t b)
{
    return a == b || ((a & 0x7f) == 0x7f && (b & 0x7f) == 0x7f); /* NaN with any sign */
}

static void report(fsdp_verify_case *c, int64_t differing, const char *name, const char *what)
{
    fsdp_verify_compared(c, (double)differing, 0, "differing", "%s: %s%s", file_name, name, what);
}

/* Compare one tensor that belongs to a matrix: `what` is the end of its name, with the dot. */
static fsdp_status compare_part(fsdp_verify_case *c, const float8_matrix *m, const char *what,
                                const fsdp_checkpoint_entry *e)
{
    const int64_t n = m->rows * m->columns;
    int64_t differing = 0;
    if (strcmp(what, ".dequantized") == 0) {
        float *values;
        FSDP_TRY(fsdp_verify_floats(e, &values));
        for (int64_t i = 0; e->numel == n && i < n; i++)
            differing += !same_floats(values[i], fsdp_f32_from_e4m3(code_of(m, i)) *
                                                     m->scales[scale_index(m, i)]);
        fsdp_free(values);
        if (e->numel != n)
            return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s' has not the shape of 'x'", e->path,
                              e->name);
    } else {
        const unsigned char *bytes = NULL;
        FSDP_TRY(read_bytes(e, n, &bytes));
        for (int64_t i = 0; i < n; i++)
            differing += !same_codes(bytes[i], code_of(m, i));
    }
    report(c, differing, m->name, what);
    return FSDP_OK;
}

static fsdp_status compare_scales(fsdp_verify_case *c, const float8_matrix *m,
                                  const fsdp_checkpoint_entry *e)
{
    float *want;
    int64_t differing = 0;
    FSDP_TRY(fsdp_verify_floats(e, &want));
    for (int64_t i = 0; i < e->numel; i++)
        differing += !same_floats(want[i], m->scales[i]);
    fsdp_free(want);
    report(c, differing, m->name, ".scale");
    return FSDP_OK;
}

/* Find out, from the shape of the scales, which elements share a scale. */
static fsdp_status set_shape_of_scales(float8_matrix *m, const fsdp_checkpoint_entry *e)
{
    const bool by_column = e->ndim == 2 && e->shape[0] == 1 && e->shape[1] == m->columns;
    m->scale_rows = m->scale_columns = 1;
    if (e->numel == 1)
        return FSDP_OK;
    if (by_column)
        m->scale_columns = m->columns;
    else
        m->scale_rows = m->rows;
    if (e->numel != m->scale_rows * m->scale_columns)
        return fsdp_error(
            FSDP_ERR_FORMAT, "%s: tensor '%s' has %lld scales; 'x' has %lld rows and %lld columns",
            e->path, e->name, (long long)e->numel, (long long)m->rows, (long long)m->columns);
    return FSDP_OK;
}

static fsdp_status compare_parts(fsdp_verify_case *c, const fsdp_checkpoint_reader *file,
                                 const float8_matrix *m)
{
    static const char *const parts[] = {".q", ".bits", ".dequantized"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char *name = fsdp_strdup_printf("%s%s", m->name, parts[i]);
        if (!name)
            return FSDP_ERR_NOMEM;
        const fsdp_checkpoint_entry *e = fsdp_checkpoint_find(file, name);
        fsdp_free(name);
        if (e)
            FSDP_TRY(compare_part(c, m, parts[i], e));
    }
    return FSDP_OK;
}

/* Compare the tensors whose names begin with `name`. `scale` is the entry of the scales. */
static fsdp_status compare_matrix(fsdp_verify_case *c, const fsdp_checkpoint_reader *file,
                                  const char *name, const fsdp_checkpoint_entry *scale)
{
    const fsdp_checkpoint_entry *x;
    float *values;
    FSDP_TRY(fsdp_checkpoint_get(file, "x", &x));
    float8_matrix m = {.name = name, .rows = rows_of(x)};
    m.columns = m.rows ? x->numel / m.rows : 0;
    FSDP_TRY(set_shape_of_scales(&m, scale));
    FSDP_TRY(fsdp_verify_floats(x, &values));
    m.x = values;
    m.scales = scales_of(&m);
    fsdp_status status = m.scales ? compare_scales(c, &m, scale) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = compare_parts(c, file, &m);
    fsdp_free(m.scales);
    fsdp_free(values);
    return status;
}

/* --- casts, and the values of codes --- */

/* The largest value of e4m3fn is 448. In some versions, PyTorch's cast gives NaN for a magnitude
 * above 464, which would be rounded to more than 448. In newer versions and in torchao, the cast
 * saturates. So the file's values must be equal to the results of one of these two casts. */
static fsdp_status compare_casts(fsdp_verify_case *c, const fsdp_checkpoint_reader *file,
                                 const fsdp_checkpoint_entry *x)
{
    const fsdp_checkpoint_entry *e;
    const unsigned char *bytes = NULL;
    float *values;
    int64_t plain = 0, saturated = 0;
    FSDP_TRY(fsdp_checkpoint_get(file, "cast.bits", &e));
    FSDP_TRY(read_bytes(e, x->numel, &bytes));
    FSDP_TRY(fsdp_verify_floats(x, &values));
    for (int64_t i = 0; i < x->numel; i++) {
        plain += !same_codes(bytes[i], fsdp_e4m3_from_f32(values[i]));
        saturated += !same_codes(bytes[i], fsdp_float8_saturated(FSDP_FLOAT8_E4M3FN, values[i]));
    }
    fsdp_free(values);
    const bool saturates = saturated <= plain;
    report(c, saturates ? saturated : plain, "cast.bits",
           saturates ? ", saturated" : ", not saturated");
    return FSDP_OK;
}

static fsdp_status compare_values(fsdp_verify_case *c, const fsdp_checkpoint_entry *e,
                                  fsdp_float8_format format)
{
    float *values;
    int64_t differing = 0;
    if (e->numel != 256)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s' has %lld elements, not 256", e->path,
                          e->name, (long long)e->numel);
    FSDP_TRY(fsdp_verify_floats(e, &values));
    for (int code = 0; code < 256; code++)
        differing += !same_floats(values[code], fsdp_f32_from_float8(format, (uint8_t)code));
    fsdp_free(values);
    report(c, differing, e->name, "");
    return FSDP_OK;
}

/* --- the file --- */

/* Return true if the tensor `name` is compared together with another tensor of the file. This is so
 * for "x", "cast.bits", and the tensors of a matrix that has scales. */
static bool is_compared_elsewhere(const fsdp_checkpoint_reader *file, const char *name)
{
    static const char *const parts[] = {".q", ".bits", ".dequantized"};
    if (strcmp(name, "x") == 0 || strcmp(name, "cast.bits") == 0)
        return true;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!fsdp_ends_with(name, parts[i]))
            continue;
        char *scale =
            fsdp_strdup_printf("%.*s.scale", (int)(strlen(name) - strlen(parts[i])), name);
        const bool has_scale = scale && fsdp_checkpoint_find(file, scale);
        fsdp_free(scale);
        return has_scale;
    }
    return false;
}

static fsdp_status compare_entry(fsdp_verify_case *c, const fsdp_checkpoint_reader *file,
                                 const fsdp_checkpoint_entry *e)
{
    if (is_compared_elsewhere(file, e->name))
        return FSDP_OK;
    if (strcmp(e->name, "cast.x") == 0)
        return compare_casts(c, file, e);
    if (strcmp(e->name, "e4m3fn_values") == 0)
        return compare_values(c, e, FSDP_FLOAT8_E4M3FN);
    if (strcmp(e->name, "e5m2_values") == 0)
        return compare_values(c, e, FSDP_FLOAT8_E5M2);
    if (!fsdp_ends_with(e->name, ".scale")) {
        fsdp_verify_skipped(c, e->name, "this version does not support this tensor");
        return FSDP_OK;
    }
    char *name = fsdp_strdup_printf("%.*s", (int)(strlen(e->name) - strlen(".scale")), e->name);
    if (!name)
        return FSDP_ERR_NOMEM;
    const fsdp_status status = compare_matrix(c, file, name, e);
    fsdp_free(name);
    return status;
}

fsdp_status fsdp_verify_float8(fsdp_verify_case *c)
{
    fsdp_checkpoint_reader *file;
    FSDP_TRY(fsdp_agree(c->group, fsdp_verify_open_tensors(c, file_name, &file)));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < fsdp_checkpoint_count(file) && status == FSDP_OK; i++)
        status = compare_entry(c, file, fsdp_checkpoint_at(file, i));
    fsdp_checkpoint_close(file);
    return status;
}
