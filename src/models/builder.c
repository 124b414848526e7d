/* See builder.h. */
#include "src/models/builder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"

static fsdp_module *attach(fsdp_builder *b, fsdp_module *parent, const char *name,
                           fsdp_module *child)
{
    if (b->status != FSDP_OK)
        return NULL;
    b->status = fsdp_module_add_child(parent, name, child);
    return b->status == FSDP_OK ? child : NULL;
}

fsdp_module *fsdp_build_module(fsdp_builder *b, fsdp_module *parent, const char *name,
                               const char *class_name)
{
    fsdp_module *m = NULL;
    if (b->status == FSDP_OK)
        b->status = fsdp_module_create(class_name, &m);
    return attach(b, parent, name, m);
}

fsdp_module *fsdp_build_item(fsdp_builder *b, fsdp_module *list, int64_t index,
                             const char *class_name)
{
    char name[24];
    snprintf(name, sizeof name, "%lld", (long long)index);
    return fsdp_build_module(b, list, name, class_name);
}

static fsdp_layer layer_of(const fsdp_module *m)
{
    if (!m)
        return (fsdp_layer){0};
    return (fsdp_layer){fsdp_module_parameter(m, "weight"), fsdp_module_parameter(m, "bias")};
}

fsdp_layer fsdp_build_linear(fsdp_builder *b, fsdp_module *parent, const char *name, int64_t in,
                             int64_t out, bool bias, double std)
{
    fsdp_module *m = NULL;
    if (b->status == FSDP_OK)
        b->status = fsdp_linear_create(in, out, bias, (fsdp_init){.std = (float)std}, &m);
    return layer_of(attach(b, parent, name, m));
}

fsdp_parameter *fsdp_build_embedding(fsdp_builder *b, fsdp_module *parent, const char *name,
                                     int64_t rows, int64_t width, fsdp_init init)
{
    fsdp_module *m = NULL;
    if (b->status == FSDP_OK)
        b->status = fsdp_embedding_create(rows, width, init, &m);
    return layer_of(attach(b, parent, name, m)).weight;
}

/* Write the float `value` as Python does: with the smallest number of digits that strtod() converts
 * back to the same value. */
static void float_text(double value, char *text, size_t size)
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    if (!strpbrk(text, ".en"))
        snprintf(text + strlen(text), size - strlen(text), ".0");
}

static void set_extra_repr(fsdp_builder *b, fsdp_module *m, const char *text)
{
    if (b->status == FSDP_OK)
        b->status = fsdp_module_set_extra_repr(m, text);
}

void fsdp_build_dropout(fsdp_builder *b, fsdp_module *parent, const char *name, double p)
{
    char number[32], text[64];
    fsdp_module *m = fsdp_build_module(b, parent, name, "Dropout");
    float_text(p, number, sizeof number);
    snprintf(text, sizeof text, "p=%s, inplace=False", number);
    set_extra_repr(b, m, text);
}

/* Set the text in parentheses that is printed after the class of a norm. The text ends with
 * `more`. */
static void set_norm_repr(fsdp_builder *b, fsdp_module *m, int64_t width, double eps,
                          const char *more)
{
    char number[32], text[128];
    float_text(eps, number, sizeof number);
    snprintf(text, sizeof text, "(%" PRId64 ",), eps=%s%s", width, number, more);
    set_extra_repr(b, m, text);
}

fsdp_parameter *fsdp_build_rms_norm(fsdp_builder *b, fsdp_module *parent, const char *name,
                                    const char *class_name, int64_t width, double value, double eps)
{
    fsdp_module *m = NULL;
    if (b->status == FSDP_OK)
        b->status = fsdp_norm_create(class_name, width, (fsdp_init){.mean = (float)value}, &m);
    m = attach(b, parent, name, m);
    if (eps > 0.0)
        set_norm_repr(b, m, width, eps, "");
    return layer_of(m).weight;
}

fsdp_layer fsdp_build_layer_norm(fsdp_builder *b, fsdp_module *parent, const char *name,
                                 int64_t width, double eps)
{
    fsdp_module *m = NULL;
    if (b->status == FSDP_OK)
        b->status = fsdp_layer_norm_create(width, &m);
    m = attach(b, parent, name, m);
    set_norm_repr(b, m, width, eps, ", elementwise_affine=True, bias=True");
    return layer_of(m);
}

fsdp_parameter *fsdp_build_parameter(fsdp_builder *b, fsdp_module *m, const char *name, int ndim,
                                     const int64_t *shape, fsdp_init init)
{
    fsdp_parameter *p = NULL;
    if (b->status == FSDP_OK)
        b->status = fsdp_module_add_parameter(m, name, ndim, shape, init, &p);
    return p;
}

void fsdp_build_tied(fsdp_builder *b, fsdp_module *parent, const char *name, const char *class_name,
                     fsdp_parameter *shared)
{
    fsdp_module *m = fsdp_build_module(b, parent, name, class_name);
    if (b->status == FSDP_OK)
        b->status = fsdp_module_share_parameter(m, "weight", shared);
}

void *fsdp_build_impl(fsdp_builder *b, fsdp_module *m, fsdp_forward_fn *forward, size_t size)
{
    void *impl = b->status == FSDP_OK ? fsdp_calloc(1, size) : NULL;
    if (impl)
        fsdp_module_set_forward(m, forward, impl, fsdp_free);
    else if (b->status == FSDP_OK)
        b->status = FSDP_ERR_NOMEM;
    return impl;
}

fsdp_status fsdp_check_dims(const char *model, const fsdp_dim *dims, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (dims[i].value < 1)
            return fsdp_error(FSDP_ERR_INVALID, "%s: %s is %lld, not positive", model, dims[i].name,
                              (long long)dims[i].value);
    return FSDP_OK;
}
