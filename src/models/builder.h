/* Building a module tree by a chain of calls. After a failure the remaining calls do nothing:
 * `parent` may be NULL then, and results are NULL. */
#pragma once
#include "src/nn/module.h"

typedef struct fsdp_builder {
    fsdp_status status; /* the first failure */
} fsdp_builder;

/* Add a child of `parent`. Its class has no forward and no parameters; it only adds a level of
 * names. */
fsdp_module *fsdp_build_module(fsdp_builder *b, fsdp_module *parent, const char *name,
                               const char *class_name);
/* The same, named by its index in a ModuleList. */
fsdp_module *fsdp_build_item(fsdp_builder *b, fsdp_module *list, int64_t index,
                             const char *class_name);

/* The parameters of a layer; bias may be NULL. */
typedef struct fsdp_layer {
    fsdp_parameter *weight, *bias;
} fsdp_layer;

/* torch.nn.Linear: weight [out, in] drawn by `init`, bias zeros. */
fsdp_layer fsdp_build_linear(fsdp_builder *b, fsdp_module *parent, const char *name, int64_t in,
                             int64_t out, bool bias, double std);
/* torch.nn.Embedding, weight [rows, width]. */
fsdp_parameter *fsdp_build_embedding(fsdp_builder *b, fsdp_module *parent, const char *name,
                                     int64_t rows, int64_t width, fsdp_init init);
/* Add a norm with one weight, initially `value` everywhere. eps 0: the class does not print its
 * eps. */
fsdp_parameter *fsdp_build_rms_norm(fsdp_builder *b, fsdp_module *parent, const char *name,
                                    const char *class_name, int64_t width, double value,
                                    double eps);
/* torch.nn.LayerNorm: weight ones, bias zeros. */
fsdp_layer fsdp_build_layer_norm(fsdp_builder *b, fsdp_module *parent, const char *name,
                                 int64_t width, double eps);
/* torch.nn.Dropout. It only prints the rate; forwards have the rate themselves. */
void fsdp_build_dropout(fsdp_builder *b, fsdp_module *parent, const char *name, double p);
/* Add another parameter to `m`. */
fsdp_parameter *fsdp_build_parameter(fsdp_builder *b, fsdp_module *m, const char *name, int ndim,
                                     const int64_t *shape, fsdp_init init);
/* Add a module of `class_name` whose weight is `shared`. */
void fsdp_build_tied(fsdp_builder *b, fsdp_module *parent, const char *name, const char *class_name,
                     fsdp_parameter *shared);
/* Allocate the module's own struct, which is zero and freed with the module, and set its
 * forward. */
void *fsdp_build_impl(fsdp_builder *b, fsdp_module *m, fsdp_forward_fn *forward, size_t size);

/* A dimension and its name, for fsdp_check_dims(). */
typedef struct fsdp_dim {
    const char *name;
    int64_t value;
} fsdp_dim;
/* FSDP_ERR_INVALID with the names of model and dimension if a dimension is not positive. */
FSDP_MUST_CHECK fsdp_status fsdp_check_dims(const char *model, const fsdp_dim *dims, size_t n);
