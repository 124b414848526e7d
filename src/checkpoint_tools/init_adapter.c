/* See init_adapter.h. First, the adapter is computed layer by layer and written to a temporary
 * folder. Then the residual is written: the base model minus the adapter's update
 * (merge_adapter.h). Finally, the adapter's folder gets its final name. So there is no adapter
 * without its residual. */
#include "src/checkpoint_tools/init_adapter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <fsdp/pretrained.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/philox.h"
#include "src/base/svd.h"
#include "src/checkpoint_tools/apart.h"
#include "src/checkpoint_tools/merge_adapter.h"
#include "src/checkpoint_tools/model_folder.h"
#include "src/hf/hf_dir.h"
#include "src/hf/weights_writer.h"
#include "src/models/model_type.h"
#include "src/nn/adapter.h"
#include "src/pretrained/load_names.h"
#include "src/pretrained/lora_files.h"
#include "src/pretrained/model.h"
#include "src/pretrained/nf4_entry.h"
#include "src/tensor/device.h"

/* A tensor of the adapter's file. */
typedef struct output {
    char *name;                        /* owned */
    const fsdp_parameter *parameter;   /* its shape is that of the tensor */
    const fsdp_parameter *weight;      /* the tensor belongs to the adapter of this weight; NULL:
                                          the tensor is a trained parameter of the base model */
    const fsdp_checkpoint_entry *from; /* the base model's tensor of `weight`, or of `parameter` if
                                          `weight` is NULL */
} output;

typedef struct making {
    const fsdp_init_adapter_options *options;
    const char *model_dir, *residual;
    fsdp_merge_result merged;
    fsdp_pretrained base;
    fsdp_module *model;        /* the tree of modules with the adapter, without memory */
    fsdp_parameter_list names; /* every name of every parameter of `model` */
    fsdp_device *device;
    output *outputs; /* [n] the matrix B of a layer directly follows its matrix A */
    size_t n, n_layers;
} making;

/* --- what is written --- */

static const char *name_of(const making *m, const fsdp_parameter *parameter)
{
    for (size_t i = 0; i < m->names.n; i++)
        if (m->names.items[i].parameter == parameter)
            return m->names.items[i].name;
    return "?";
}

/* Set *entry to the base model's tensor of `parameter`. */
static fsdp_status find_base(const making *m, const fsdp_parameter *parameter,
                             const fsdp_checkpoint_entry **entry)
{
    const char *name = name_of(m, parameter);
    fsdp_nf4_entry nf4;
    bool is_nf4;
    FSDP_TRY(fsdp_load_find(m->base.weights, m->base.config.type->base_prefix, name, entry));
    if (!*entry)
        return fsdp_error(FSDP_ERR_NOT_FOUND, "%s: has no tensor '%s', which the adapter needs",
                          m->base.dir, name);
    FSDP_TRY(fsdp_nf4_entry_find(m->base.weights, *entry, &nf4, &is_nf4));
    if (is_nf4)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: '%s' is in NF4: PiSSA decomposes weights in float32, float16 or "
                          "bfloat16; make the adapter from such a model, and train with "
                          "--load-in-4bit, which quantizes the residual",
                          m->base.dir, name);
    return fsdp_checkpoint_entry_check_shape(*entry, parameter->shape, parameter->ndim);
}

static fsdp_status add_output(making *m, const fsdp_parameter *parameter,
                              const fsdp_parameter *weight)
{
    const char *name = name_of(m, parameter);
    const size_t bytes = strlen(name) + sizeof FSDP_LORA_NAME_PREFIX;
    output *o = &m->outputs[m->n++];
    *o = (output){.name = fsdp_calloc(1, bytes), .parameter = parameter, .weight = weight};
    if (!o->name)
        return FSDP_ERR_NOMEM;
    snprintf(o->name, bytes, FSDP_LORA_NAME_PREFIX "%s", name);
    return find_base(m, weight ? weight : parameter, &o->from);
}

static fsdp_status check_layer(const making *m, const fsdp_parameter *weight)
{
    const fsdp_adapter *a = weight->adapter;
    const int64_t r = a->a->shape[0], in = a->a->shape[1], out = a->b->shape[0];
    if (r > in || r > out)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--lora-r %lld: '%s' is %lld x %lld and has fewer singular values",
                          (long long)r, name_of(m, weight), (long long)out, (long long)in);
    if (!(a->scaling > 0.0f))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--lora-alpha: the update of '%s' would be multiplied by %g; PiSSA needs "
                          "a positive number",
                          name_of(m, weight), (double)a->scaling);
    return FSDP_OK;
}

static fsdp_status list_outputs(making *m)
{
    m->outputs = fsdp_calloc(2 * m->names.n + 1, sizeof *m->outputs);
    if (!m->outputs)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < m->names.n; i++) {
        const fsdp_parameter *p = m->names.items[i].parameter;
        if (name_of(m, p) != m->names.items[i].name || p->in_adapter)
            continue;
        if (p->adapter) {
            FSDP_TRY(check_layer(m, p));
            FSDP_TRY(add_output(m, p->adapter->a, p));
            FSDP_TRY(add_output(m, p->adapter->b, p));
            m->n_layers++;
        } else if (fsdp_parameter_requires_grad(p)) {
            FSDP_TRY(add_output(m, p, NULL));
        }
    }
    return FSDP_OK;
}

/* --- writing the adapter --- */

/* Set *values to the elements of the entry as float32. The caller owns *values. */
static fsdp_status read_values(const making *m, const fsdp_checkpoint_entry *entry, float **values)
{
    fsdp_dtype dtype;
    FSDP_TRY(fsdp_checkpoint_entry_dtype(entry, &dtype));
    if (!fsdp_dtype_is_floating(dtype))
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: tensor '%s' of %s is not in floating point",
                          entry->path, entry->name, entry->dtype_name);
    char *raw = fsdp_calloc(1, entry->bytes + 1); /* a copy, because the bytes of a tensor in the
                                                     file may not be aligned */
    *values = fsdp_calloc((size_t)entry->numel + 1, sizeof **values);
    const fsdp_status status = raw && *values ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        memcpy(raw, entry->data, entry->bytes);
        m->device->kernels->cast(m->device->context, *values, FSDP_DTYPE_F32, raw, dtype,
                                 entry->numel);
    }
    fsdp_free(raw);
    return status;
}

/* Decompose the weight w, as it is stored: [out, in], or [in, out] for a Conv1D. */
static fsdp_status decompose(const making *m, const output *o, const float *w, fsdp_svd *svd)
{
    const int64_t *shape = o->weight->shape, r = o->weight->adapter->a->shape[0];
    const int niter = m->options->niter;
    const uint64_t layer = (uint64_t)(o - m->outputs);
    fsdp_status status = niter < 0 ? fsdp_svd_exact(w, shape[0], shape[1], r, svd)
                                   : fsdp_svd_low_rank(w, shape[0], shape[1], r, niter,
                                                       fsdp_mix64(m->options->seed) + layer, svd);
    if (status != FSDP_OK)
        fsdp_error_context(status, "%s: tensor '%s'", o->from->path, o->from->name);
    return status;
}

/* Write A = sqrt(S / scaling) V^T and B = U sqrt(S / scaling), where U S V^T is the decomposition
 * of the weight as [out, in]. `svd` is the decomposition of the weight as it is stored, which may
 * be transposed. `a` [r, in] and `b` [out, r] are memory for A and B. */
static fsdp_status write_matrices(const making *m, size_t i, const fsdp_svd *svd, float *a,
                                  float *b, fsdp_weights_writer *writer)
{
    const fsdp_adapter *adapter = m->outputs[i].weight->adapter;
    const int64_t r = adapter->a->shape[0], in = adapter->a->shape[1], out = adapter->b->shape[0];
    const double *of_in = adapter->transposed ? svd->u : svd->v;
    const double *of_out = adapter->transposed ? svd->v : svd->u;
    for (int64_t k = 0; k < r; k++) {
        const double root = sqrt(svd->s[k] / (double)adapter->scaling);
        for (int64_t j = 0; j < in; j++)
            a[k * in + j] = (float)(root * of_in[j * r + k]);
        for (int64_t j = 0; j < out; j++)
            b[j * r + k] = (float)(root * of_out[j * r + k]);
    }
    FSDP_TRY(fsdp_weights_writer_write(writer, i, 0, a, (size_t)(r * in) * sizeof *a));
    return fsdp_weights_writer_write(writer, i + 1, 0, b, (size_t)(r * out) * sizeof *b);
}

static fsdp_status write_layer(const making *m, size_t i, const float *w,
                               fsdp_weights_writer *writer)
{
    const fsdp_adapter *adapter = m->outputs[i].weight->adapter;
    const int64_t r = adapter->a->shape[0];
    float *a = fsdp_calloc((size_t)(r * adapter->a->shape[1]), sizeof *a);
    float *b = fsdp_calloc((size_t)(r * adapter->b->shape[0]), sizeof *b);
    fsdp_svd svd = {0};
    fsdp_status status = a && b ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = decompose(m, &m->outputs[i], w, &svd);
    if (status == FSDP_OK)
        status = write_matrices(m, i, &svd, a, b, writer);
    fsdp_svd_fini(&svd);
    fsdp_free(a);
    fsdp_free(b);
    return status;
}

static fsdp_status write_tensors(const making *m, fsdp_weights_writer *writer)
{
    size_t done = 0;
    for (size_t i = 0; i < m->n; i++) {
        const output *o = &m->outputs[i];
        float *values = NULL;
        fsdp_status status = read_values(m, o->from, &values);
        if (status == FSDP_OK && o->weight)
            status = write_layer(m, i++, values, writer);
        else if (status == FSDP_OK)
            status = fsdp_weights_writer_write(writer, i, 0, values,
                                               (size_t)o->from->numel * sizeof *values);
        fsdp_free(values);
        FSDP_TRY(status);
        if (m->options->progress && o->weight)
            m->options->progress(m->options->context, ++done, m->n_layers);
    }
    return FSDP_OK;
}

static fsdp_status write_values(const making *m, const char *dir)
{
    fsdp_weights_writer *writer = NULL;
    fsdp_safetensors_spec *specs = fsdp_calloc(m->n, sizeof *specs);
    if (!specs)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < m->n; i++)
        specs[i] = (fsdp_safetensors_spec){.name = m->outputs[i].name,
                                           .dtype = FSDP_DTYPE_F32,
                                           .shape = m->outputs[i].parameter->shape,
                                           .ndim = m->outputs[i].parameter->ndim};
    const fsdp_weights_files files = {
        .dir = dir, .stem = "adapter_model", .max_file_bytes = INT64_MAX};
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

static fsdp_status write_residual(making *m, const char *adapter)
{
    const fsdp_merge_options options = {.model = m->model_dir,
                                        .subtract = true,
                                        .max_shard_bytes = m->options->max_shard_bytes,
                                        .overwrite = m->options->overwrite};
    return fsdp_merge_adapters(&adapter, 1, m->residual, &options, &m->merged);
}

/* Write the adapter to `dir`, and then the residual. */
static fsdp_status write_both(void *arg, const char *dir)
{
    making *m = arg;
    const fsdp_model_info info = fsdp_model_config_info(&m->base.config);
    const fsdp_lora_about about = {.base_model = m->residual,
                                   .task_type = fsdp_lora_task_type(&info)};
    char *path = fsdp_path_join(dir, "adapter_config.json");
    fsdp_status status = path ? write_values(m, dir) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_lora_config_write(m->options->lora, m->model, &about, path);
    fsdp_free(path);
    return status == FSDP_OK ? write_residual(m, dir) : status;
}

/* --- all --- */

static fsdp_status open_all(making *m, const char *model, const char *adapter)
{
    if (m->options->lora->use_dora)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "an adapter cannot be both PiSSA's and DoRA's");
    FSDP_TRY(fsdp_pretrained_open(model, false, &m->base));
    FSDP_TRY(fsdp_check_not_replaced(adapter, m->base.dir, "decomposed"));
    FSDP_TRY(fsdp_check_not_replaced(m->residual, m->base.dir, "decomposed"));
    FSDP_TRY(fsdp_model_create(&m->base.config, &m->model));
    FSDP_TRY(fsdp_lora_apply(m->model, m->options->lora));
    FSDP_TRY(fsdp_module_parameters(m->model, true, &m->names));
    FSDP_TRY(fsdp_device_create(&(fsdp_device_options){.name = "cpu"}, &m->device));
    return list_outputs(m);
}

static void close_all(making *m)
{
    for (size_t i = 0; i < m->n; i++)
        fsdp_free(m->outputs[i].name);
    fsdp_free(m->outputs);
    fsdp_parameter_list_free(&m->names);
    fsdp_module_destroy(m->model);
    fsdp_device_destroy(m->device);
    fsdp_pretrained_close(&m->base);
}

/* Check that both folders can be written, before the weights are decomposed. */
static fsdp_status check_places(const char *adapter, const char *residual, bool overwrite)
{
    const fsdp_existing existing = overwrite ? FSDP_EXISTING_UPDATE : FSDP_EXISTING_REFUSE;
    FSDP_TRY(fsdp_check_two_folders(adapter, residual, "the adapter and the residual"));
    FSDP_TRY(fsdp_atomic_directory_check(adapter, existing));
    return fsdp_atomic_directory_check(residual, existing);
}

fsdp_status fsdp_init_adapter(const char *model, const char *adapter, const char *residual,
                              const fsdp_init_adapter_options *options,
                              fsdp_init_adapter_result *result)
{
    making m = {.options = options, .model_dir = model, .residual = residual};
    fsdp_status status = check_places(adapter, residual, options->overwrite);
    if (status == FSDP_OK)
        status = open_all(&m, model, adapter);
    if (status == FSDP_OK)
        status = fsdp_write_model_folder(adapter, options->overwrite, write_both, &m);
    if (status == FSDP_OK)
        *result = (fsdp_init_adapter_result){.layers = m.n_layers, .tensors = m.merged.tensors};
    close_all(&m);
    return status;
}
