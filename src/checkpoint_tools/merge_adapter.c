/* See merge_adapter.h.
 *
 * For each adapter, the model's tree of modules is built without memory, and the adapter is added
 * to it. So the tree shows which weights have an update, and from which matrices each update is
 * computed. It also shows which tensors of the base model the adapter replaces. Then the base
 * model's tensors are written one after the other, in pieces of a few rows. A piece with an update
 * is computed in float32. */
#include "src/checkpoint_tools/merge_adapter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/pretrained.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/checkpoint_tools/apart.h"
#include "src/checkpoint_tools/model_folder.h"
#include "src/checkpoint_tools/too_large.h"
#include "src/hf/hf_dir.h"
#include "src/hf/weights_writer.h"
#include "src/models/generation_config.h"
#include "src/models/model_type.h"
#include "src/nn/adapter.h"
#include "src/pretrained/load_names.h"
#include "src/pretrained/lora_files.h"
#include "src/pretrained/model.h"
#include "src/pretrained/nf4_entry.h"
#include "src/pretrained/quantize.h"
#include "src/tensor/device.h"
#include "src/torchfile/safetensors_dtype.h"

enum {
    PIECE_BYTES = 4 << 20 /* size of a piece as float32 values */
};

/* One adapter. */
typedef struct part {
    const char *dir;
    double weight;
    fsdp_lora_file *file;
    fsdp_checkpoint_reader *values;
    fsdp_module *model;        /* the tree of modules with the adapter, without memory */
    fsdp_parameter_list names; /* every name of every parameter of `model` */
} part;

/* An update of one tensor by one adapter. */
typedef struct update {
    float *a, *b; /* [r, in] and [out, r]; owned */
    int64_t r, in, out;
    float factor;
    bool transposed; /* the weight is [in, out] */
    /* [out] DoRA: the magnitudes of the outputs until take_factors() replaces them with the factors
     * by which the outputs are multiplied; owned. NULL: the adapter does not use DoRA. */
    float *magnitudes;
} update;

/* A tensor of the result. */
typedef struct output {
    const char *name;
    const fsdp_checkpoint_entry *from;
    const fsdp_safetensors_dtype *dtype;
    bool is_nf4; /* `from` is a weight in NF4; the field `nf4` describes it */
    fsdp_nf4_entry nf4;
} output;

typedef struct merge {
    const fsdp_merge_options *options;
    part *parts; /* [n_parts] */
    size_t n_parts;
    fsdp_pretrained base;
    fsdp_device *device;
    output *outputs; /* [n] sorted by name */
    size_t n;
    update *updates; /* [n_parts] the first n_updates entries are the updates of the tensor that is
                        being written */
    size_t n_updates;
    float *piece;      /* PIECE_BYTES bytes: a piece as float32 values */
    char *raw, *bytes; /* [2 * PIECE_BYTES] raw: a piece as it was read; bytes: the piece as it is
                          written */
    bool is_quantized; /* a weight of the base model is in NF4 */
    fsdp_too_large too_large; /* elements that became infinite as float16 */
    fsdp_merge_result result;
} merge;

/* --- opening --- */

static fsdp_status open_base(merge *m)
{
    char *name = NULL;
    fsdp_status status = FSDP_OK;
    if (m->options->model)
        status = (name = fsdp_strdup(m->options->model)) ? FSDP_OK : FSDP_ERR_NOMEM;
    else
        status = fsdp_lora_find_base(m->parts[0].file, m->parts[0].dir, &name);
    if (status == FSDP_OK)
        status = fsdp_pretrained_open(name, false, &m->base);
    if (status != FSDP_OK && !m->options->model)
        fsdp_error_context(status, "%s: its base model", m->parts[0].dir);
    fsdp_free(name);
    return status;
}

static fsdp_status open_part(merge *m, part *p)
{
    FSDP_TRY(fsdp_model_create(&m->base.config, &p->model));
    const fsdp_status status = fsdp_lora_apply(p->model, fsdp_lora_file_config(p->file));
    fsdp_error_context(status, "%s", p->dir);
    FSDP_TRY(status);
    FSDP_TRY(fsdp_module_parameters(p->model, true, &p->names));
    return fsdp_lora_open_values(p->dir, &p->values);
}

/* Return an error if an adapter with magnitudes (DoRA) cannot be merged as the options say. */
static fsdp_status check_dora(const merge *m, const part *p)
{
    if (!fsdp_lora_file_config(p->file)->use_dora)
        return FSDP_OK;
    if (m->options->subtract)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: use_dora is set, and --subtract cannot undo its merge: the norms of "
                          "the rows of the base model are not in the merged model any more; keep "
                          "the base model instead",
                          p->dir);
    if (m->n_parts > 1 || p->weight != 1.0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: use_dora is set, so the adapter replaces the norms of whole rows of "
                          "the weights: it can be merged only by itself and with the weight 1",
                          p->dir);
    return FSDP_OK;
}

static fsdp_status open_all(merge *m, const char *to)
{
    for (size_t i = 0; i < m->n_parts; i++)
        FSDP_TRY(fsdp_lora_file_read(m->parts[i].dir, &m->parts[i].file));
    for (size_t i = 0; i < m->n_parts; i++)
        FSDP_TRY(check_dora(m, &m->parts[i]));
    for (size_t i = 0; i < m->n_parts; i++)
        FSDP_TRY(fsdp_check_not_replaced(to, m->parts[i].dir, "merged"));
    FSDP_TRY(open_base(m));
    FSDP_TRY(fsdp_check_not_replaced(to, m->base.dir, "merged"));
    FSDP_TRY(fsdp_lora_fit_head(m->parts[0].dir, &m->base.config));
    for (size_t i = 0; i < m->n_parts; i++)
        FSDP_TRY(open_part(m, &m->parts[i]));
    FSDP_TRY(fsdp_quantize_check_files(m->parts[0].model, m->base.weights,
                                       m->base.config.type->base_prefix));
    FSDP_TRY(fsdp_device_create(&(fsdp_device_options){.name = "cpu"}, &m->device));
    m->piece = fsdp_calloc(1, PIECE_BYTES);
    m->raw = fsdp_calloc(2, PIECE_BYTES);
    m->bytes = fsdp_calloc(2, PIECE_BYTES);
    m->updates = fsdp_calloc(m->n_parts, sizeof *m->updates);
    return m->piece && m->raw && m->bytes && m->updates ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* --- which tensors are written --- */

static const char *name_of(const part *p, const fsdp_parameter *parameter)
{
    for (size_t i = 0; i < p->names.n; i++)
        if (p->names.items[i].parameter == parameter)
            return p->names.items[i].name;
    return NULL;
}

/* Return true if the adapter has a tensor that replaces the base model's tensor of this
 * parameter. */
static bool replaces(const fsdp_parameter *parameter)
{
    return fsdp_parameter_requires_grad(parameter) && !parameter->in_adapter;
}

/* Find the parameter of adapter `p` whose tensor in the base model is `entry`. Set *parameter to
 * NULL if there is none. */
static fsdp_status find_parameter(const merge *m, const part *p, const fsdp_checkpoint_entry *entry,
                                  const fsdp_parameter **parameter)
{
    const char *prefix = m->base.config.type->base_prefix;
    *parameter = NULL;
    for (size_t i = 0; i < p->names.n && !*parameter; i++) {
        const fsdp_checkpoint_entry *found;
        FSDP_TRY(fsdp_load_find(m->base.weights, prefix, p->names.items[i].name, &found));
        if (found == entry)
            *parameter = p->names.items[i].parameter;
    }
    return FSDP_OK;
}

/* If adapter `p` replaces the tensor of `parameter`, set *entry to the adapter's tensor. */
static fsdp_status take_replacement(const part *p, const fsdp_parameter *parameter,
                                    const fsdp_checkpoint_entry **entry)
{
    if (!parameter || !replaces(parameter))
        return FSDP_OK;
    FSDP_TRY(fsdp_checkpoint_get(p->values, name_of(p, parameter), entry));
    return fsdp_checkpoint_entry_check_shape(*entry, parameter->shape, parameter->ndim);
}

static fsdp_status add_output(merge *m, const char *name, const fsdp_checkpoint_entry *from)
{
    const fsdp_safetensors_dtype *dtype = fsdp_safetensors_dtype_by_name(from->dtype_name);
    const bool converts = m->options->has_dtype && dtype && dtype->fsdp_dtype >= 0 &&
                          fsdp_dtype_is_floating((fsdp_dtype)dtype->fsdp_dtype);
    if (converts)
        dtype = fsdp_safetensors_dtype_of(m->options->dtype);
    fsdp_nf4_entry nf4;
    bool is_nf4 = false;
    /* Only tensors of the base model can be in NF4. If a tensor of an adapter replaces such a
     * tensor, it has the same name, but is not in NF4. */
    if (fsdp_checkpoint_find(m->base.weights, from->name) == from)
        FSDP_TRY(fsdp_nf4_entry_find(m->base.weights, from, &nf4, &is_nf4));
    if (is_nf4) {
        m->is_quantized = true;
        dtype = fsdp_safetensors_dtype_of(m->options->has_dtype ? m->options->dtype : nf4.dtype);
        m->outputs[m->n++] =
            (output){.name = name, .from = from, .dtype = dtype, .is_nf4 = true, .nf4 = nf4};
        return FSDP_OK;
    }
    if (!dtype)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: tensor '%s': dtype %s", from->path, from->name,
                          from->dtype_name);
    m->outputs[m->n++] = (output){.name = name, .from = from, .dtype = dtype};
    return FSDP_OK;
}

static fsdp_status list_base(merge *m)
{
    for (size_t i = 0; i < fsdp_checkpoint_count(m->base.weights); i++) {
        const fsdp_checkpoint_entry *entry = fsdp_checkpoint_at(m->base.weights, i), *from = entry;
        size_t replacements = 0;
        if (fsdp_nf4_weight_name(entry->name))
            continue;
        for (size_t k = 0; k < m->n_parts; k++) {
            const fsdp_parameter *parameter;
            const fsdp_checkpoint_entry *before = from;
            FSDP_TRY(find_parameter(m, &m->parts[k], entry, &parameter));
            FSDP_TRY(take_replacement(&m->parts[k], parameter, &from));
            replacements += from != before;
        }
        if (replacements > 1)
            return fsdp_error(FSDP_ERR_INVALID,
                              "'%s': several adapters have this tensor (modules_to_save, bias), so "
                              "they cannot be merged together",
                              entry->name);
        m->result.replaced += replacements;
        FSDP_TRY(add_output(m, entry->name, from));
    }
    return FSDP_OK;
}

/* Add the adapter's tensors that the base model lacks, such as the tensors of a new classifier. */
static fsdp_status list_new(merge *m, const part *p)
{
    for (size_t i = 0; i < p->names.n; i++) {
        const fsdp_parameter *parameter = p->names.items[i].parameter;
        const fsdp_checkpoint_entry *found = NULL, *from = NULL;
        if (!replaces(parameter) || name_of(p, parameter) != p->names.items[i].name)
            continue;
        FSDP_TRY(fsdp_load_find(m->base.weights, m->base.config.type->base_prefix,
                                p->names.items[i].name, &found));
        if (found)
            continue;
        FSDP_TRY(take_replacement(p, parameter, &from));
        FSDP_TRY(add_output(m, p->names.items[i].name, from));
        m->result.replaced++;
    }
    return FSDP_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const output *)a)->name, ((const output *)b)->name);
}

static fsdp_status list_outputs(merge *m)
{
    size_t most = fsdp_checkpoint_count(m->base.weights);
    for (size_t k = 0; k < m->n_parts; k++)
        most += m->parts[k].names.n;
    m->outputs = fsdp_calloc(most, sizeof *m->outputs);
    if (!m->outputs)
        return FSDP_ERR_NOMEM;
    FSDP_TRY(list_base(m));
    for (size_t k = 0; k < m->n_parts; k++)
        FSDP_TRY(list_new(m, &m->parts[k]));
    qsort(m->outputs, m->n, sizeof *m->outputs, by_name);
    for (size_t i = 1; i < m->n; i++)
        if (strcmp(m->outputs[i - 1].name, m->outputs[i].name) == 0)
            return fsdp_error(FSDP_ERR_INVALID,
                              "'%s': several adapters have this tensor (modules_to_save), so they "
                              "cannot be merged together",
                              m->outputs[i].name);
    return FSDP_OK;
}

/* --- updates --- */

/* Set *values to the elements of an adapter's matrix as floats. The caller owns them. */
static fsdp_status read_matrix(const merge *m, const part *p, const fsdp_parameter *parameter,
                               float **values)
{
    const fsdp_checkpoint_entry *entry;
    fsdp_dtype dtype;
    FSDP_TRY(fsdp_checkpoint_get(p->values, name_of(p, parameter), &entry));
    FSDP_TRY(fsdp_checkpoint_entry_check_shape(entry, parameter->shape, parameter->ndim));
    FSDP_TRY(fsdp_checkpoint_entry_dtype(entry, &dtype));
    char *raw = fsdp_calloc(1, entry->bytes + 1);
    *values = fsdp_calloc((size_t)entry->numel, sizeof **values);
    fsdp_status status = raw && *values ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        memcpy(raw, entry->data, entry->bytes);
        m->device->kernels->cast(m->device->context, *values, FSDP_DTYPE_F32, raw, dtype,
                                 entry->numel);
    }
    fsdp_free(raw);
    return status;
}

static void free_updates(merge *m)
{
    for (size_t i = 0; i < m->n_updates; i++) {
        fsdp_free(m->updates[i].a);
        fsdp_free(m->updates[i].b);
        fsdp_free(m->updates[i].magnitudes);
        m->updates[i] = (update){0};
    }
    m->n_updates = 0;
}

static fsdp_status add_update(merge *m, const part *p, const fsdp_parameter *weight)
{
    const fsdp_adapter *adapter = weight->adapter;
    update *u = &m->updates[m->n_updates++];
    *u = (update){.r = adapter->a->shape[0],
                  .in = adapter->a->shape[1],
                  .out = adapter->b->shape[0],
                  .transposed = adapter->transposed,
                  .factor = (float)(p->weight * (double)adapter->scaling)};
    FSDP_TRY(read_matrix(m, p, adapter->a, &u->a));
    FSDP_TRY(read_matrix(m, p, adapter->b, &u->b));
    return adapter->magnitude ? read_matrix(m, p, adapter->magnitude, &u->magnitudes) : FSDP_OK;
}

/* Return an error if the base model's tensor does not have the shape that config.json gives to the
 * parameter. The matrices of the update were made for that shape. */
static fsdp_status check_updated(const merge *m, const output *o, const fsdp_parameter *parameter)
{
    const int64_t *expected = parameter->shape;
    fsdp_status status = FSDP_OK;
    if (!o->is_nf4)
        status = fsdp_checkpoint_entry_check_shape(o->from, expected, parameter->ndim);
    else if (o->nf4.ndim != parameter->ndim ||
             memcmp(o->nf4.shape, expected, (size_t)parameter->ndim * sizeof *expected) != 0)
        status = fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s': its quant_state gives another shape",
                            o->from->path, o->from->name);
    if (status == FSDP_OK && parameter->ndim != 2)
        status = fsdp_error(FSDP_ERR_UNSUPPORTED,
                            "%s: tensor '%s' has %d dimensions, and only matrices are merged",
                            o->from->path, o->from->name, parameter->ndim);
    fsdp_error_context(status, "the base model does not fit %s/config.json", m->base.dir);
    return status;
}

static fsdp_status find_updates(merge *m, const output *o)
{
    for (size_t k = 0; k < m->n_parts; k++) {
        const fsdp_parameter *parameter;
        FSDP_TRY(find_parameter(m, &m->parts[k], o->from, &parameter));
        if (!parameter || !parameter->adapter)
            continue;
        FSDP_TRY(check_updated(m, o, parameter));
        FSDP_TRY(add_update(m, &m->parts[k], parameter));
    }
    m->result.merged += m->n_updates > 0;
    return FSDP_OK;
}

/* Add an update to rows [begin, begin + n) of a weight, whose rows have `width` elements. */
static void add_to_rows(const update *u, float *rows, int64_t begin, int64_t n, int64_t width)
{
    for (int64_t i = 0; i < n; i++) {
        float *row = rows + i * width;
        for (int64_t k = 0; k < u->r; k++) {
            /* Row i of B A is the sum over k of B[i, k] A[k, :]. Row i of its transpose is the sum
             * over k of A[k, i] B[:, k]. */
            const float f = u->factor * (u->transposed ? u->a[k * u->in + begin + i]
                                                       : u->b[(begin + i) * u->r + k]);
            const float *vector = u->transposed ? u->b + k : u->a + k * u->in;
            const int64_t stride = u->transposed ? u->r : 1;
            for (int64_t j = 0; j < width; j++)
                row[j] += f * vector[j * stride];
        }
    }
}

/* --- pieces of a weight with an update --- */

/* A weight that has an update, or that is in NF4. */
typedef struct weight_rows {
    const output *o;
    int64_t height, width;
    int64_t most;            /* largest number of rows in a piece */
    fsdp_nf4_values *values; /* NULL: the weight is not in NF4 */
} weight_rows;

/* Return the number of rows of the piece that begins at row `begin`. */
static int64_t rows_at(const weight_rows *w, int64_t begin)
{
    return w->height - begin < w->most ? w->height - begin : w->most;
}

/* Set m->piece to rows [begin, begin + rows) of the weight, with the updates added. */
static void read_updated(merge *m, const weight_rows *w, int64_t begin, int64_t rows)
{
    const output *o = w->o;
    if (w->values) {
        const float *read = fsdp_nf4_values_read(w->values, begin * w->width, rows * w->width);
        memcpy(m->piece, read, (size_t)(rows * w->width) * sizeof *read);
    } else {
        const fsdp_safetensors_dtype *from = fsdp_safetensors_dtype_by_name(o->from->dtype_name);
        const size_t bytes = (size_t)w->width * (size_t)from->bits / 8;
        memcpy(m->raw, (const char *)o->from->data + (size_t)begin * bytes, (size_t)rows * bytes);
        m->device->kernels->cast(m->device->context, m->piece, FSDP_DTYPE_F32, m->raw,
                                 (fsdp_dtype)from->fsdp_dtype, rows * w->width);
    }
    for (size_t k = 0; k < m->n_updates; k++)
        add_to_rows(&m->updates[k], m->piece, begin, rows, w->width);
}

/* DoRA: divide the magnitude of each output by the norm of this output in the updated weight. An
 * output is a row of the weight or, if the weight is transposed, a column. */
static fsdp_status take_factors(merge *m, const weight_rows *w, update *u)
{
    double *squares = fsdp_calloc((size_t)u->out, sizeof *squares);
    if (!squares)
        return FSDP_ERR_NOMEM;
    for (int64_t begin = 0, rows; begin < w->height; begin += rows) {
        rows = rows_at(w, begin);
        read_updated(m, w, begin, rows);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < w->width; j++) {
                const double value = (double)m->piece[i * w->width + j];
                squares[u->transposed ? j : begin + i] += value * value;
            }
    }
    for (int64_t i = 0; i < u->out; i++)
        u->magnitudes[i] = squares[i] == 0.0 ? 0.0f : u->magnitudes[i] / (float)sqrt(squares[i]);
    fsdp_free(squares);
    return FSDP_OK;
}

/* Multiply the outputs in the piece by their factors. */
static void scale_rows(const merge *m, const update *u, const weight_rows *w, int64_t begin,
                       int64_t rows)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < w->width; j++)
            m->piece[i * w->width + j] *= u->magnitudes[u->transposed ? j : begin + i];
}

/* --- writing --- */

static fsdp_status write_updated(merge *m, const weight_rows *w, fsdp_weights_writer *writer,
                                 size_t i)
{
    const fsdp_dtype dtype = (fsdp_dtype)w->o->dtype->fsdp_dtype;
    const size_t bytes = (size_t)w->width * (size_t)w->o->dtype->bits / 8;
    update *dora = m->n_updates && m->updates[0].magnitudes ? &m->updates[0] : NULL;
    if (dora)
        FSDP_TRY(take_factors(m, w, dora));
    for (int64_t begin = 0, rows; begin < w->height; begin += rows) {
        rows = rows_at(w, begin);
        read_updated(m, w, begin, rows);
        if (dora)
            scale_rows(m, dora, w, begin, rows);
        m->device->kernels->cast(m->device->context, m->bytes, dtype, m->piece, FSDP_DTYPE_F32,
                                 rows * w->width);
        fsdp_too_large_count(&m->too_large, w->o->name, m->piece,
                             fsdp_safetensors_dtype_of(FSDP_DTYPE_F32), m->bytes, w->o->dtype,
                             (size_t)(rows * w->width));
        FSDP_TRY(fsdp_weights_writer_write(writer, i, (uint64_t)begin * bytes, m->bytes,
                                           (size_t)rows * bytes));
    }
    return FSDP_OK;
}

/* Write a weight that is in NF4 in the base model: read it as floating-point numbers, add the
 * updates, and write the sums. */
static fsdp_status write_nf4(merge *m, const output *o, fsdp_weights_writer *writer, size_t i)
{
    const int64_t most = PIECE_BYTES / (int64_t)sizeof(float);
    const int64_t width = o->nf4.ndim == 2 ? o->nf4.shape[1] : 1;
    if (width > most)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: tensor '%s' with rows of %lld elements cannot be merged",
                          o->from->path, o->from->name, (long long)width);
    fsdp_nf4_values values;
    fsdp_status status = fsdp_nf4_values_init(&values, &o->nf4, m->device, most);
    if (status == FSDP_OK)
        status = write_updated(m,
                               &(weight_rows){.o = o,
                                              .height = o->nf4.numel / width,
                                              .width = width,
                                              .most = values.most / width,
                                              .values = &values},
                               writer, i);
    fsdp_nf4_values_fini(&values);
    return status;
}

/* Write a tensor that has no update, in pieces. Its dtype may change. */
static fsdp_status copy_tensor(merge *m, const output *o, fsdp_weights_writer *writer, size_t i)
{
    const fsdp_safetensors_dtype *from = fsdp_safetensors_dtype_by_name(o->from->dtype_name);
    if (from == o->dtype)
        return fsdp_weights_writer_write(writer, i, 0, o->from->data, o->from->bytes);
    const size_t width = (size_t)from->bits / 8, out_width = (size_t)o->dtype->bits / 8;
    const int64_t most = PIECE_BYTES / 8;
    for (int64_t at = 0, n; at < o->from->numel; at += n) {
        n = o->from->numel - at < most ? o->from->numel - at : most;
        memcpy(m->raw, (const char *)o->from->data + (size_t)at * width, (size_t)n * width);
        m->device->kernels->cast(m->device->context, m->bytes, (fsdp_dtype)o->dtype->fsdp_dtype,
                                 m->raw, (fsdp_dtype)from->fsdp_dtype, n);
        fsdp_too_large_count(&m->too_large, o->name, m->raw, from, m->bytes, o->dtype, (size_t)n);
        FSDP_TRY(fsdp_weights_writer_write(writer, i, (uint64_t)at * out_width, m->bytes,
                                           (size_t)n * out_width));
    }
    return FSDP_OK;
}

static fsdp_status merge_tensor(merge *m, const output *o, fsdp_weights_writer *writer, size_t i)
{
    fsdp_dtype dtype;
    FSDP_TRY(fsdp_checkpoint_entry_dtype(o->from, &dtype));
    const int64_t width = o->from->shape[1], most = PIECE_BYTES / (int64_t)sizeof(float) / width;
    if (!fsdp_dtype_is_floating(dtype) || most < 1)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: tensor '%s' of %s with rows of %lld elements cannot be merged",
                          o->from->path, o->from->name, o->from->dtype_name, (long long)width);
    return write_updated(
        m, &(weight_rows){.o = o, .height = o->from->shape[0], .width = width, .most = most},
        writer, i);
}

static fsdp_status write_tensors(merge *m, fsdp_weights_writer *writer)
{
    for (size_t i = 0; i < m->n; i++) {
        fsdp_status status = find_updates(m, &m->outputs[i]);
        if (status == FSDP_OK)
            status = m->outputs[i].is_nf4 ? write_nf4(m, &m->outputs[i], writer, i)
                     : m->n_updates       ? merge_tensor(m, &m->outputs[i], writer, i)
                                          : copy_tensor(m, &m->outputs[i], writer, i);
        free_updates(m);
        FSDP_TRY(status);
        if (m->options->progress)
            m->options->progress(m->options->context, i + 1, m->n);
    }
    return FSDP_OK;
}

static const int64_t *shape_of(const output *o)
{
    return o->is_nf4 ? o->nf4.shape : o->from->shape;
}

static fsdp_status write_weights(merge *m, const char *dir)
{
    fsdp_weights_writer *writer = NULL;
    fsdp_safetensors_spec *specs = fsdp_calloc(m->n, sizeof *specs);
    if (!specs)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < m->n; i++)
        specs[i] = (fsdp_safetensors_spec){.name = m->outputs[i].name,
                                           .dtype_name = m->outputs[i].dtype->name,
                                           .shape = shape_of(&m->outputs[i]),
                                           .ndim = m->outputs[i].is_nf4 ? m->outputs[i].nf4.ndim
                                                                        : m->outputs[i].from->ndim};
    const fsdp_weights_files files = {.dir = dir, .max_file_bytes = m->options->max_shard_bytes};
    fsdp_status status = fsdp_weights_writer_create(&files, specs, m->n, &writer);
    if (status == FSDP_OK)
        status = write_tensors(m, writer);
    if (status == FSDP_OK)
        status = fsdp_weights_writer_finish(writer);
    else
        fsdp_weights_writer_discard(writer);
    fsdp_free(specs);
    return status;
}

static fsdp_status write_configs(const merge *m, const char *dir)
{
    const fsdp_model_info info = fsdp_model_config_info(&m->base.config);
    char *source = fsdp_path_join(m->base.dir, "config.json");
    char *path = fsdp_path_join(dir, "config.json");
    char *generation = fsdp_path_join(dir, "generation_config.json");
    fsdp_status status = source && path && generation ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_model_config_write(&m->base.config, !info.tie_word_embeddings,
                                         m->options->has_dtype ? m->options->dtype : info.dtype,
                                         source, path);
    if (status == FSDP_OK && m->is_quantized)
        status = fsdp_quantize_config_write(path, NULL);
    if (status == FSDP_OK && info.format.task != FSDP_TASK_CLASSIFICATION &&
        info.format.task != FSDP_TASK_MASKED_LM)
        status = fsdp_generation_config_write(&info, m->base.dir, generation);
    fsdp_free(source);
    fsdp_free(path);
    fsdp_free(generation);
    return status;
}

/* Write the files of the folder. If the adapter's folder has a tokenizer, use this one, because
 * training may have added tokens. */
static fsdp_status write_folder(void *arg, const char *dir)
{
    merge *m = arg;
    const fsdp_model_info info = fsdp_model_config_info(&m->base.config);
    const char *model_file =
        info.format.task == FSDP_TASK_SEQ2SEQ ? "spiece.model" : "tokenizer.model";
    FSDP_TRY(write_weights(m, dir));
    FSDP_TRY(write_configs(m, dir));
    FSDP_TRY(fsdp_hf_dir_copy_tokenizer(m->base.dir, dir, model_file));
    return fsdp_hf_dir_copy_tokenizer(m->parts[0].dir, dir, model_file);
}

static void close_all(merge *m)
{
    for (size_t i = 0; i < m->n_parts; i++) {
        fsdp_parameter_list_free(&m->parts[i].names);
        fsdp_module_destroy(m->parts[i].model);
        fsdp_checkpoint_close(m->parts[i].values);
        fsdp_lora_file_destroy(m->parts[i].file);
    }
    free_updates(m);
    fsdp_free(m->updates);
    fsdp_free(m->outputs);
    fsdp_free(m->piece);
    fsdp_free(m->raw);
    fsdp_free(m->bytes);
    fsdp_device_destroy(m->device);
    fsdp_pretrained_close(&m->base);
    fsdp_free(m->parts);
}

static fsdp_status note_too_large(const merge *m)
{
    char *text = fsdp_too_large_note(&m->too_large);
    if (!text)
        return fsdp_error_nomem();
    m->options->note(text, m->options->context);
    fsdp_free(text);
    return FSDP_OK;
}

fsdp_status fsdp_merge_adapters(const char *const *adapters, size_t n_adapters, const char *to,
                                const fsdp_merge_options *options, fsdp_merge_result *result)
{
    merge m = {.options = options, .n_parts = n_adapters};
    m.parts = fsdp_calloc(n_adapters, sizeof *m.parts);
    if (!m.parts)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n_adapters; i++) {
        const double weight = options->weights ? options->weights[i] : 1.0;
        m.parts[i] = (part){.dir = adapters[i], .weight = options->subtract ? -weight : weight};
    }
    fsdp_status status = open_all(&m, to);
    if (status == FSDP_OK)
        status = list_outputs(&m);
    if (status == FSDP_OK)
        status = fsdp_write_model_folder(to, options->overwrite, write_folder, &m);
    m.result.tensors = m.n;
    if (status == FSDP_OK && m.too_large.n && options->note)
        status = note_too_large(&m);
    if (status == FSDP_OK)
        *result = m.result;
    close_all(&m);
    return status;
}
