/* See quantize_folder.h. The model's tree of modules is built without memory. It shows which
 * weights are quantized. A weight becomes five tensors, or seven with double quantization (Note
 * [Files of bitsandbytes] in src/pretrained/nf4_entry.h). */
#include "src/checkpoint_tools/quantize_folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/arena.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/checkpoint_tools/apart.h"
#include "src/checkpoint_tools/model_folder.h"
#include "src/checkpoint_tools/too_large.h"
#include "src/hf/hf_dir.h"
#include "src/hf/weights_writer.h"
#include "src/models/model_type.h"
#include "src/pretrained/load_names.h"
#include "src/pretrained/model.h"
#include "src/pretrained/nf4_entry.h"
#include "src/pretrained/pretrained.h"
#include "src/tensor/device.h"
#include "src/torchfile/safetensors_dtype.h"

enum {
    PIECE = 1 << 20, /* number of elements of a piece; a multiple of the number of elements that
                        share a nested absmax */
    STATE_BYTES = 512
};

/* The kinds of tensors in the result. The kinds after PLAIN are the tensors of a weight in NF4, in
 * the order of their names. */
typedef enum piece_kind {
    PLAIN, /* any other tensor */
    PACKED,
    ABSMAX,
    NESTED_ABSMAX,
    NESTED_MAP,
    LEVELS,
    STATE
} piece_kind;

static const char *const suffixes[] = {[PACKED] = "",
                                       [ABSMAX] = ".absmax",
                                       [NESTED_ABSMAX] = ".nested_absmax",
                                       [NESTED_MAP] = ".nested_quant_map",
                                       [LEVELS] = ".quant_map",
                                       [STATE] = ".quant_state.bitsandbytes__nf4"};

/* A tensor of the result. */
typedef struct output {
    const char *name;
    piece_kind kind;
    const fsdp_checkpoint_entry *from; /* the tensor of the source; for a companion tensor (scales,
                                          levels), its weight */
    const fsdp_safetensors_dtype *dtype;
    const int64_t *shape; /* [ndim] */
    int ndim;
    bool was_nf4; /* `from` is a weight in NF4, which is described by `nf4` */
    fsdp_nf4_entry nf4;
} output;

/* The weight that is being quantized. */
typedef struct weight {
    const fsdp_checkpoint_entry *from; /* NULL: no weight has been begun */
    fsdp_quantized *q;
    float *absmax;  /* [q->blocks] scales */
    uint8_t *codes; /* [q->blocks] scales in 8 bits, if they are quantized, too */
} weight;

typedef struct folder_run {
    const fsdp_quantize_folder_options *options;
    fsdp_quantize_folder_result *result;
    fsdp_pretrained base;
    fsdp_module *model; /* without memory */
    fsdp_parameter_list names;
    fsdp_device *device;
    fsdp_arena arena; /* names and shapes of the result's tensors */
    output *outputs;  /* [n] sorted by name */
    size_t n, cap;
    weight now;
    fsdp_too_large too_large; /* elements that became infinite as float16 */
    float *values;            /* [PIECE] */
    char *raw, *bytes;        /* [8 * PIECE] raw: a piece as it was read; bytes: the piece as it is
                                 written */
} folder_run;

/* --- which tensors are written --- */

static fsdp_quantization quantization_of(const folder_run *run)
{
    const bool is_double = run->options->quantize && run->options->quantize->double_quant;
    return (fsdp_quantization){.block = FSDP_NF4_BLOCK,
                               .is_double = is_double,
                               .nested_block = is_double ? FSDP_NF4_NESTED_BLOCK : 0};
}

static fsdp_status add_output(folder_run *run, const output *o)
{
    if (!FSDP_GROW(run->outputs, run->cap, run->n + 1))
        return FSDP_ERR_NOMEM;
    run->outputs[run->n++] = *o;
    return FSDP_OK;
}

static fsdp_status add_part(folder_run *run, const fsdp_checkpoint_entry *from, piece_kind kind,
                            const char *dtype, int64_t n)
{
    const size_t bytes = strlen(from->name) + strlen(suffixes[kind]) + 1;
    char *name = fsdp_arena_alloc(&run->arena, bytes);
    int64_t *shape = fsdp_arena_alloc(&run->arena, 2 * sizeof *shape);
    if (!name || !shape)
        return FSDP_ERR_NOMEM;
    snprintf(name, bytes, "%s%s", from->name, suffixes[kind]);
    shape[0] = n;
    shape[1] = 1;
    return add_output(run, &(output){.name = name,
                                     .kind = kind,
                                     .from = from,
                                     .dtype = fsdp_safetensors_dtype_by_name(dtype),
                                     .shape = shape,
                                     .ndim = kind == PACKED ? 2 : 1});
}

static fsdp_status add_nf4(folder_run *run, const fsdp_checkpoint_entry *from)
{
    const fsdp_quantization how = quantization_of(run);
    const int64_t blocks = (from->numel + how.block - 1) / how.block;
    run->result->changed++;
    FSDP_TRY(add_part(run, from, PACKED, "U8", (from->numel + 1) / 2));
    FSDP_TRY(add_part(run, from, ABSMAX, how.is_double ? "U8" : "F32", blocks));
    if (how.is_double) {
        FSDP_TRY(add_part(run, from, NESTED_ABSMAX, "F32",
                          (blocks + how.nested_block - 1) / how.nested_block));
        FSDP_TRY(add_part(run, from, NESTED_MAP, "F32", FSDP_NF4_MAP));
    }
    FSDP_TRY(add_part(run, from, LEVELS, "F32", FSDP_NF4_LEVELS));
    return add_part(run, from, STATE, "U8", STATE_BYTES);
}

static bool is_floating(const fsdp_safetensors_dtype *dtype)
{
    return dtype && dtype->fsdp_dtype >= 0 && fsdp_dtype_is_floating((fsdp_dtype)dtype->fsdp_dtype);
}

static fsdp_status add_plain(folder_run *run, const fsdp_checkpoint_entry *from)
{
    output o = {.name = from->name,
                .from = from,
                .dtype = fsdp_safetensors_dtype_by_name(from->dtype_name),
                .shape = from->shape,
                .ndim = from->ndim};
    FSDP_TRY(fsdp_nf4_entry_find(run->base.weights, from, &o.nf4, &o.was_nf4));
    if (o.was_nf4) {
        int64_t *shape = fsdp_arena_alloc(&run->arena, sizeof o.nf4.shape);
        if (!shape)
            return FSDP_ERR_NOMEM;
        memcpy(shape, o.nf4.shape, sizeof o.nf4.shape);
        o.shape = shape;
        o.ndim = o.nf4.ndim;
        o.dtype = fsdp_safetensors_dtype_of(o.nf4.dtype);
        run->result->changed++;
    }
    if (run->options->has_dtype && is_floating(o.dtype))
        o.dtype = fsdp_safetensors_dtype_of(run->options->dtype);
    if (!o.dtype)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: tensor '%s': dtype %s", from->path, from->name,
                          from->dtype_name);
    return add_output(run, &o);
}

/* Return an error unless the tensor has the shape of the parameter and floating-point elements. */
static fsdp_status check_weight(const fsdp_checkpoint_entry *entry, const fsdp_parameter *parameter)
{
    FSDP_TRY(fsdp_checkpoint_entry_check_shape(entry, parameter->shape, parameter->ndim));
    if (is_floating(fsdp_safetensors_dtype_by_name(entry->dtype_name)))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: tensor '%s' of %s cannot be quantized",
                      entry->path, entry->name, entry->dtype_name);
}

/* Set *quantized to true if the tensor is the weight of a parameter that is to be quantized. */
static fsdp_status is_quantized(const folder_run *run, const fsdp_checkpoint_entry *entry,
                                bool *quantized)
{
    const char *prefix = run->base.config.type->base_prefix;
    *quantized = false;
    for (size_t i = 0; i < run->names.n && !*quantized; i++) {
        const fsdp_checkpoint_entry *found;
        if (!run->names.items[i].parameter->quantized)
            continue;
        FSDP_TRY(fsdp_load_find(run->base.weights, prefix, run->names.items[i].name, &found));
        *quantized = found == entry;
        if (*quantized)
            FSDP_TRY(check_weight(entry, run->names.items[i].parameter));
    }
    return FSDP_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const output *)a)->name, ((const output *)b)->name);
}

static fsdp_status list_outputs(folder_run *run)
{
    for (size_t i = 0; i < fsdp_checkpoint_count(run->base.weights); i++) {
        const fsdp_checkpoint_entry *entry = fsdp_checkpoint_at(run->base.weights, i);
        bool quantized = false;
        if (fsdp_nf4_weight_name(entry->name))
            continue;
        if (run->options->quantize)
            FSDP_TRY(is_quantized(run, entry, &quantized));
        FSDP_TRY(quantized ? add_nf4(run, entry) : add_plain(run, entry));
    }
    qsort(run->outputs, run->n, sizeof *run->outputs, by_name);
    return FSDP_OK;
}

/* --- a weight that becomes NF4 --- */

static void forget_weight(folder_run *run)
{
    fsdp_quantized_free(run->now.q);
    fsdp_free(run->now.absmax);
    fsdp_free(run->now.codes);
    run->now = (weight){0};
}

static fsdp_status begin_weight(folder_run *run, const fsdp_checkpoint_entry *from)
{
    const fsdp_quantization how = quantization_of(run);
    forget_weight(run);
    run->now.from = from;
    FSDP_TRY(fsdp_quantized_create(&how, from->numel, &run->now.q));
    run->now.absmax = fsdp_calloc((size_t)run->now.q->blocks + 1, sizeof *run->now.absmax);
    run->now.codes = fsdp_calloc((size_t)run->now.q->blocks + 1, 1);
    return run->now.absmax && run->now.codes ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* Quantize the scales of the weight (double quantization). First compute their mean, which is the
 * offset. */
static void quantize_scales(folder_run *run)
{
    weight *w = &run->now;
    double sum = 0.0;
    for (int64_t at = 0; at < w->q->blocks; at += w->q->how.nested_block) {
        double part = 0.0;
        for (int64_t i = at; i < w->q->blocks && i < at + w->q->how.nested_block; i++)
            part += (double)w->absmax[i];
        sum += part;
    }
    w->q->offset = (float)(sum / (double)w->q->blocks);
    fsdp_nf4_quantize_scales(w->absmax, w->q->blocks, w->q->how.nested_block, w->q->offset,
                             w->q->map, w->codes, w->q->nested);
}

static fsdp_status write_packed(folder_run *run, const output *o, fsdp_weights_writer *writer,
                                size_t i)
{
    const fsdp_safetensors_dtype *from = fsdp_safetensors_dtype_by_name(o->from->dtype_name);
    const size_t width = (size_t)from->bits / 8;
    FSDP_TRY(begin_weight(run, o->from));
    for (int64_t at = 0, n; at < o->from->numel; at += n) {
        n = o->from->numel - at < PIECE ? o->from->numel - at : PIECE;
        memcpy(run->raw, (const char *)o->from->data + (size_t)at * width, (size_t)n * width);
        run->device->kernels->cast(run->device->context, run->values, FSDP_DTYPE_F32, run->raw,
                                   (fsdp_dtype)from->fsdp_dtype, n);
        const int64_t done =
            fsdp_nf4_quantize(run->values, n, FSDP_NF4_BLOCK, (uint8_t *)run->bytes,
                              run->now.absmax + at / FSDP_NF4_BLOCK);
        if (done < n)
            return fsdp_error(FSDP_ERR_INVALID,
                              "%s: element %lld of tensor '%s' is infinite or NaN, so it cannot be "
                              "quantized (--load-in-4bit)",
                              o->from->path, (long long)(at + done), o->from->name);
        FSDP_TRY(fsdp_weights_writer_write(writer, i, (uint64_t)at / 2, run->bytes,
                                           (size_t)(n + 1) / 2));
    }
    if (run->now.q->how.is_double)
        quantize_scales(run);
    return FSDP_OK;
}

/* Write the JSON object that bitsandbytes reads. Pad it with spaces to STATE_BYTES bytes, because
 * the size of the tensor must be known before nested_offset, the mean of the scales, is known. */
static fsdp_status write_state(const folder_run *run, const output *o, fsdp_weights_writer *writer,
                               size_t i)
{
    const fsdp_quantized *q = run->now.q;
    fsdp_dtype dtype;
    fsdp_str text = {0};
    FSDP_TRY(fsdp_checkpoint_entry_dtype(o->from, &dtype));
    fsdp_str_printf(&text,
                    "{\"quant_type\": \"nf4\", \"blocksize\": %" PRId64
                    ", \"dtype\": \"%s\", \"shape\": [",
                    q->how.block, fsdp_dtype_name(dtype));
    for (int d = 0; d < o->from->ndim; d++)
        fsdp_str_printf(&text, "%s%" PRId64, d ? ", " : "", o->from->shape[d]);
    fsdp_str_printf(&text, "]");
    if (q->how.is_double)
        fsdp_str_printf(&text,
                        ", \"nested_blocksize\": %" PRId64
                        ", \"nested_dtype\": \"float32\", \"nested_offset\": %.17g",
                        q->how.nested_block, (double)q->offset);
    fsdp_str_printf(&text, "}");
    char state[STATE_BYTES];
    memset(state, ' ', sizeof state);
    const bool fits = !text.failed && text.len <= sizeof state;
    if (fits)
        memcpy(state, text.data, text.len);
    fsdp_str_fini(&text);
    if (!fits)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: tensor '%s' has too many dimensions",
                          o->from->path, o->from->name);
    return fsdp_weights_writer_write(writer, i, 0, state, sizeof state);
}

static fsdp_status write_part(folder_run *run, const output *o, fsdp_weights_writer *writer,
                              size_t i)
{
    const fsdp_quantized *q = run->now.q;
    const size_t scales = (size_t)(q ? q->blocks : 0);
    switch (o->kind) {
    case ABSMAX:
        return q->how.is_double ? fsdp_weights_writer_write(writer, i, 0, run->now.codes, scales)
                                : fsdp_weights_writer_write(writer, i, 0, run->now.absmax,
                                                            scales * sizeof *run->now.absmax);
    case NESTED_ABSMAX:
        return fsdp_weights_writer_write(writer, i, 0, q->nested,
                                         (size_t)q->nested_blocks * sizeof *q->nested);
    case NESTED_MAP:
        return fsdp_weights_writer_write(writer, i, 0, q->map, sizeof q->map);
    case LEVELS:
        return fsdp_weights_writer_write(writer, i, 0, fsdp_nf4_levels, sizeof fsdp_nf4_levels);
    default:
        return write_state(run, o, writer, i);
    }
}

/* --- other tensors --- */

static fsdp_status write_plain(folder_run *run, const output *o, fsdp_weights_writer *writer,
                               size_t i)
{
    const fsdp_safetensors_dtype *from = fsdp_safetensors_dtype_by_name(o->from->dtype_name);
    if (from == o->dtype)
        return fsdp_weights_writer_write(writer, i, 0, o->from->data, o->from->bytes);
    const size_t width = (size_t)from->bits / 8, out_width = (size_t)o->dtype->bits / 8;
    for (int64_t at = 0, n; at < o->from->numel; at += n) {
        n = o->from->numel - at < PIECE ? o->from->numel - at : PIECE;
        memcpy(run->raw, (const char *)o->from->data + (size_t)at * width, (size_t)n * width);
        run->device->kernels->cast(run->device->context, run->bytes,
                                   (fsdp_dtype)o->dtype->fsdp_dtype, run->raw,
                                   (fsdp_dtype)from->fsdp_dtype, n);
        fsdp_too_large_count(&run->too_large, o->name, run->raw, from, run->bytes, o->dtype,
                             (size_t)n);
        FSDP_TRY(fsdp_weights_writer_write(writer, i, (uint64_t)at * out_width, run->bytes,
                                           (size_t)n * out_width));
    }
    return FSDP_OK;
}

static fsdp_status write_pieces(folder_run *run, const output *o, fsdp_weights_writer *writer,
                                size_t i, fsdp_nf4_values *values)
{
    const size_t width = (size_t)o->dtype->bits / 8;
    for (int64_t at = 0, n; at < o->nf4.numel; at += n) {
        n = o->nf4.numel - at < PIECE ? o->nf4.numel - at : PIECE;
        const float *read = fsdp_nf4_values_read(values, at, n);
        run->device->kernels->cast(run->device->context, run->bytes,
                                   (fsdp_dtype)o->dtype->fsdp_dtype, read, FSDP_DTYPE_F32, n);
        fsdp_too_large_count(&run->too_large, o->name, read,
                             fsdp_safetensors_dtype_of(FSDP_DTYPE_F32), run->bytes, o->dtype,
                             (size_t)n);
        FSDP_TRY(fsdp_weights_writer_write(writer, i, (uint64_t)at * width, run->bytes,
                                           (size_t)n * width));
    }
    return FSDP_OK;
}

static fsdp_status write_dequantized(folder_run *run, const output *o, fsdp_weights_writer *writer,
                                     size_t i)
{
    fsdp_nf4_values values;
    fsdp_status status = fsdp_nf4_values_init(&values, &o->nf4, run->device, PIECE);
    if (status == FSDP_OK)
        status = write_pieces(run, o, writer, i, &values);
    fsdp_nf4_values_fini(&values);
    return status;
}

/* --- the folder --- */

static fsdp_status write_tensor(folder_run *run, const output *o, fsdp_weights_writer *writer,
                                size_t i)
{
    if (o->was_nf4)
        return write_dequantized(run, o, writer, i);
    if (o->kind == PLAIN)
        return write_plain(run, o, writer, i);
    return o->kind == PACKED ? write_packed(run, o, writer, i) : write_part(run, o, writer, i);
}

static fsdp_status write_tensors(folder_run *run, fsdp_weights_writer *writer)
{
    for (size_t i = 0; i < run->n; i++) {
        const output *o = &run->outputs[i];
        int64_t numel = 1;
        for (int d = 0; d < o->ndim; d++)
            numel *= o->shape[d];
        FSDP_TRY(write_tensor(run, o, writer, i));
        run->result->bytes += numel * o->dtype->bits / 8;
        if (run->options->progress)
            run->options->progress(run->options->context, i + 1, run->n);
    }
    return FSDP_OK;
}

static fsdp_status write_weights(folder_run *run, const char *dir)
{
    fsdp_weights_writer *writer = NULL;
    fsdp_safetensors_spec *specs = fsdp_calloc(run->n, sizeof *specs);
    if (!specs)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < run->n; i++)
        specs[i] = (fsdp_safetensors_spec){.name = run->outputs[i].name,
                                           .dtype_name = run->outputs[i].dtype->name,
                                           .shape = run->outputs[i].shape,
                                           .ndim = run->outputs[i].ndim};
    const fsdp_weights_files files = {.dir = dir, .max_file_bytes = run->options->max_shard_bytes};
    fsdp_status status = fsdp_weights_writer_create(&files, specs, run->n, &writer);
    if (status == FSDP_OK)
        status = write_tensors(run, writer);
    if (status == FSDP_OK)
        status = fsdp_weights_writer_finish(writer);
    else
        fsdp_weights_writer_discard(writer);
    run->result->tensors = run->n;
    fsdp_free(specs);
    return status;
}

static fsdp_status write_config(folder_run *run, const char *dir)
{
    const fsdp_model_info info = fsdp_model_config_info(&run->base.config);
    fsdp_quantize_written written = {.model = run->model,
                                     .compute_dtype = run->options->has_dtype ? run->options->dtype
                                                                              : info.dtype};
    if (run->options->quantize)
        written.options = *run->options->quantize;
    FSDP_TRY(fsdp_hf_dir_copy_config(
        run->base.dir, dir, run->options->has_dtype ? fsdp_dtype_name(run->options->dtype) : NULL));
    char *path = fsdp_path_join(dir, "config.json");
    const fsdp_status status =
        path ? fsdp_quantize_config_write(path, run->options->quantize ? &written : NULL)
             : FSDP_ERR_NOMEM;
    fsdp_free(path);
    return status;
}

static fsdp_status write_folder(void *arg, const char *dir)
{
    folder_run *run = arg;
    FSDP_TRY(write_weights(run, dir));
    FSDP_TRY(write_config(run, dir));
    return fsdp_hf_dir_copy_tokenizer(run->base.dir, dir, "tokenizer.model");
}

static fsdp_status check_form(const folder_run *run, const char *from)
{
    fsdp_quantize_file file;
    fsdp_status status = fsdp_quantize_file_read(run->base.dir, &file);
    const bool is_nf4 = file.is_quantized;
    fsdp_quantize_file_fini(&file);
    FSDP_TRY(status);
    if (is_nf4 && run->options->quantize)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--load-in-4bit: %s is in NF4 already (quantization_config of its "
                          "config.json)",
                          from);
    if (!is_nf4 && !run->options->quantize)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: its config.json has no quantization_config, so there is nothing to "
                          "undo",
                          from);
    return FSDP_OK;
}

static fsdp_status open_model(folder_run *run, const char *from, const char *to)
{
    FSDP_TRY(fsdp_pretrained_open(from, false, &run->base));
    FSDP_TRY(fsdp_check_apart(to, run->base.dir, "converted"));
    FSDP_TRY(check_form(run, from));
    FSDP_TRY(fsdp_model_create(&run->base.config, &run->model));
    FSDP_TRY(fsdp_quantize_check_files(run->model, run->base.weights,
                                       run->base.config.type->base_prefix));
    if (run->options->quantize)
        FSDP_TRY(fsdp_quantize_apply(run->model, run->options->quantize, NULL, NULL, false));
    FSDP_TRY(fsdp_module_parameters(run->model, true, &run->names));
    FSDP_TRY(fsdp_device_create(&(fsdp_device_options){.name = "cpu"}, &run->device));
    run->values = fsdp_calloc(PIECE, sizeof *run->values);
    run->raw = fsdp_calloc(PIECE, sizeof(double));
    run->bytes = fsdp_calloc(PIECE, sizeof(double));
    return run->values && run->raw && run->bytes ? FSDP_OK : FSDP_ERR_NOMEM;
}

static void close_run(folder_run *run)
{
    forget_weight(run);
    fsdp_free(run->values);
    fsdp_free(run->raw);
    fsdp_free(run->bytes);
    fsdp_free(run->outputs);
    fsdp_parameter_list_free(&run->names);
    fsdp_module_destroy(run->model);
    fsdp_device_destroy(run->device);
    fsdp_pretrained_close(&run->base);
    fsdp_arena_fini(&run->arena);
}

static fsdp_status note_too_large(const folder_run *run)
{
    char *text = fsdp_too_large_note(&run->too_large);
    if (!text)
        return fsdp_error_nomem();
    run->options->note(text, run->options->context);
    fsdp_free(text);
    return FSDP_OK;
}

fsdp_status fsdp_quantize_folder(const char *from, const char *to,
                                 const fsdp_quantize_folder_options *options,
                                 fsdp_quantize_folder_result *result)
{
    folder_run run = {.options = options, .result = result};
    *result = (fsdp_quantize_folder_result){0};
    fsdp_status status = open_model(&run, from, to);
    if (status == FSDP_OK)
        status = list_outputs(&run);
    if (status == FSDP_OK)
        status = fsdp_write_model_folder(to, options->overwrite, write_folder, &run);
    if (status == FSDP_OK && run.too_large.n && options->note)
        status = note_too_large(&run);
    close_run(&run);
    return status;
}
